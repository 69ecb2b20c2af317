/* What becomes of each room's state in the child of a fork; called by fork.c only, in a process that
 * has one thread.  A room that is not here keeps nothing that a child must not have. */
#ifndef SIM_FORK_H
#define SIM_FORK_H

#include "base/core.h"

/* Around a fork: the lists of dead handles are whole in the child. */
void handles_fork_begins(void);
void handles_fork_ends(void); /* in parent and child */
/* In every child. */
void park_forked(void);        /* no thread waits */
void neighbours_forked(void);  /* a slot of its own in the shared file */
/* In a child that may use devices: its parent held none of their memory. */
void host_threads_forked(void); /* there are none; nothing is queued for them */
void reports_forked(void);      /* no thread subscribes */
void arenas_forked(void);       /* made anew, with memory of their own */
void backings_forked(void);     /* the same */
void shares_forked(void);       /* a table of its own */
void exports_forked(void);      /* what was exported is the parent's */
void graphs_forked(void);       /* no capture goes on */

#endif
