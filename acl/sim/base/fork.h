/* Resetting the state of each folder in the child of a fork. Called only by fork.c, in a process
 * with one thread. Folders that are not listed here have no state that must be reset. */
#ifndef SIM_FORK_H
#define SIM_FORK_H

#include "base/core.h"

/* Called before and after a fork. They lock and unlock the lists of dead handles, so that these lists
 * are consistent in the child. */
void handles_fork_begins(void);
void handles_fork_ends(void); /* called in parent and child */
/* Called in each forked child, also in one that may not use devices. */
void park_forked(void);        /* forgets the waiting threads, which do not exist in the child */
void neighbours_forked(void);  /* takes a slot for the child in the file of the shared capacity */
/* Called in a child that may use devices, because its parent used none and had no device memory. */
void host_threads_forked(void); /* forgets the threads for callbacks; their queues are empty */
void reports_forked(void);      /* forgets the threads that are subscribed */
void arenas_forked(void);       /* forgets the arenas; the next allocation makes new arenas with memory of the child */
void backings_forked(void);     /* forgets the files for physical memory; the next mapping makes new files */
void shares_forked(void);       /* forgets the table of exports; the next export makes a table of the child */
void exports_forked(void);      /* forgets the exports, which belong to the parent */
void graphs_forked(void);       /* forgets the open captures */

#endif
