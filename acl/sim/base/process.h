/* Which process is meant: a number alone comes again, so it goes with the time of its start.
 *
 * Thread rule: any thread.  What is written here may lie in memory that processes share. */
#ifndef SIM_PROCESS_H
#define SIM_PROCESS_H

#include "base/core.h"

/* All zero: nobody. */
typedef struct Process {
    int32_t pid;
    uint64_t start; /* in ticks since the machine's; 0: unknown */
} Process;

Process process_self(void);
/* False for nobody, for one that ended (a zombie, too), and where another has its number now. */
bool process_lives(Process process);

#endif
