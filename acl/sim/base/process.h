/* A process, identified by its number and its start time, because numbers are used again.
 *
 * Thread rule: any thread. A Process may lie in memory that processes share. */
#ifndef SIM_PROCESS_H
#define SIM_PROCESS_H

#include "base/core.h"

/* A process; if all fields are 0, there is none. */
typedef struct Process {
    int32_t pid;
    uint64_t start; /* in ticks since the machine's start; 0: unknown */
} Process;

Process process_self(void);
/* False if there is no process, if it has ended (also as a zombie), or if its number now belongs
 * to another process. */
bool process_lives(Process process);

#endif
