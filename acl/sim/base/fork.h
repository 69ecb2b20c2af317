/* Resetting the state of each folder in the child of a fork. Called only by fork.c, in a process
 * with one thread. Folders that are not listed here have no state that must be reset. */
#ifndef SIM_FORK_H
#define SIM_FORK_H

#include "base/core.h"

/* Called before and after a fork: the lists of dead handles are consistent in the child. */
void handles_fork_begins(void);
void handles_fork_ends(void); /* called in parent and child */
/* Called in every child. */
void park_forked(void);        /* no thread is waiting */
void neighbours_forked(void);  /* takes a slot of its own in the shared file */
/* Called in a child that may use devices, because its parent had no memory of a device. */
void host_threads_forked(void); /* the threads for callbacks do not exist in the child; their queues are empty */
void reports_forked(void);      /* no thread is subscribed */
void arenas_forked(void);       /* the next allocation makes new arenas, with memory of their own */
void backings_forked(void);     /* the next mapping makes new files for physical memory */
void shares_forked(void);       /* the next export makes a table of its own */
void exports_forked(void);      /* forgets the exports, which are the parent's */
void graphs_forked(void);       /* no capture is open */

#endif
