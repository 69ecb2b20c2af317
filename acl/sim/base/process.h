/* A process, identified by its number and its start time, because the system reuses numbers.
 *
 * Thread rule: any thread. A Process may lie in memory that processes share. */
#ifndef SIM_PROCESS_H
#define SIM_PROCESS_H

#include "base/core.h"

/* A process; if all fields are 0, there is none. */
typedef struct Process {
    int32_t pid;
    uint64_t start; /* when the process started: kernel clock ticks since the machine's start; 0: unknown */
} Process;

Process process_self(void);
/* True if the process is running, even if its first thread has ended. False if all fields are 0, if the process has
 * ended (a zombie has ended, too), or if its number now belongs to another process, which can be seen only if `start`
 * is known. */
bool process_lives(Process process);
/* Opens, for reading and writing, the file that another process has open as `descriptor`. Returns a descriptor of
 * this process; -1 with errno set if the file cannot be opened. */
int process_file(int32_t pid, int descriptor);

#endif
