/* parallel.h: a loop on several threads. */
#ifndef SIM_PARALLEL_H
#define SIM_PARALLEL_H

#include <stdint.h>

/* Calls body(context, i) for i in [0, count), on up to `threads` threads; returns when all are
 * done. */
void parallel_for(unsigned threads, int64_t count, void (*body)(void *context, int64_t index),
    void *context);

#endif
