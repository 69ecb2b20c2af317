/* Lets threads of the runtime enter Python, and stops that when the interpreter exits.

   A host function runs on a thread of the runtime.  It enters Python only through `guard_run`, which
   counts the threads inside Python and lets no thread in after `guard_close`.  If such a thread asks for
   the GIL while the interpreter exits, CPython before 3.14 makes the thread exit.  That would unwind the
   runtime's frames and end the process, so the thread is suspended here for ever instead.  But the
   runtime's exit functions may join its threads, and a suspended thread never ends.  So if a thread is
   still inside Python, the process ends without the runtime's exit functions. */
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

/* Calls run(argument), which may take the GIL.  Does nothing after `guard_close`. */
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
/* Ends the process.  It is registered last, so it runs before the exit functions of the runtime. */
static void guard_quit(int status, void *unused)
{
    (void)unused;
    (void)fflush(NULL);
    _exit(status);
}
#endif

/* From now on, lets no thread enter Python.  Waits up to `limit_ms` until the threads inside Python have left
   it.  If one has not, the process will end without the runtime's exit functions.  Call it without the GIL. */
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

/* Called in a forked child, where no other thread exists: sets the count of threads inside Python to 0. */
static void guard_reset(void)
{
    atomic_store(&guard_inside, 0);
}

#endif
