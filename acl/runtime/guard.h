/* Where the runtime's threads enter Python, and how they stop doing so at exit.

   A host function runs on a thread of the runtime.  It enters Python only through `guard_run`, which
   counts who is inside and lets nobody in after `guard_close`.  A thread that is inside when the
   interpreter ends is made to exit by CPython before 3.14 as soon as it asks for the GIL; unwinding the
   runtime's own frames would end the process, so the thread is parked here for good instead.  The
   runtime's exit may join its threads, and one that is inside does not end: then the process leaves
   without the runtime's exit. */
#ifndef HOST_GUARD_H
#define HOST_GUARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool guard_closed;
static atomic_int guard_inside;

static void guard_park(void *unused)
{
    (void)unused;
    for (;;) {
        (void)pause();
    }
}

/* Calls run(argument), which may take the GIL, unless the interpreter is leaving. */
static void guard_run(void (*run)(void *), void *argument)
{
    (void)atomic_fetch_add(&guard_inside, 1);
    if (!atomic_load(&guard_closed)) {
        pthread_cleanup_push(guard_park, NULL);
        run(argument);
        pthread_cleanup_pop(0);
    }
    (void)atomic_fetch_sub(&guard_inside, 1);
}

#ifdef __GLIBC__
/* Runs before what the runtime has registered for the exit, as it is registered last. */
static void guard_quit(int status, void *unused)
{
    (void)unused;
    (void)fflush(NULL);
    _exit(status);
}
#endif

/* Nobody enters any more; those inside get up to `limit_ms` to come out.  Call without the GIL. */
static void guard_close(int limit_ms)
{
    atomic_store(&guard_closed, 1);
    for (int waited = 0; atomic_load(&guard_inside) > 0 && waited < limit_ms; waited++) {
        (void)usleep(1000);
    }
#ifdef __GLIBC__
    if (atomic_load(&guard_inside) > 0) {
        (void)on_exit(guard_quit, NULL);
    }
#endif
}

/* In a child after a fork: the threads that were inside exist no more. */
static void guard_reset(void)
{
    atomic_store(&guard_inside, 0);
}

#endif
