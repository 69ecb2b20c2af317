/* A process by its number and the time of its start, because the number alone is used again.
 *
 * Thread rule: any thread.  What is written here may lie in memory that processes share. */
#ifndef SIM_PROCESS_H
#define SIM_PROCESS_H

#include "base/core.h"

/* All zero: no process. */
typedef struct Process {
    int32_t pid;
    uint64_t start; /* in ticks since the machine's; 0: unknown */
} Process;

Process process_self(void);
/* False for no process, for one that ended (a zombie, too), and if another process has its number
 * now. */
bool process_lives(Process process);

#endif
