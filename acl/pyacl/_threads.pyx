"""`acl.util.start_thread` and `stop_thread`, and how callbacks from C enter Python.

A thread is a pthread that runs `fn(args_list)` with the GIL.  `acl.rt.subscribe_report` takes its
number.  CANN's own `start_thread` also resets SIGINT to the default action.  This one does not
change signals, and Ctrl-C can interrupt `stop_thread`.  When the interpreter exits, it does not
wait for threads that were not stopped.

Callbacks enter Python only through `guarded`.  At the interpreter's exit, no more callbacks may
enter, and callbacks that are in Python have half a second to return.  If one takes the GIL later,
CPython would end its thread and so unwind frames of the runtime.  Therefore `guarded` suspends such
a thread for ever.
"""

import atexit

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint64_t

from acl.pyacl._call cimport Value, refuse, take

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <time.h>
    #include "runtime/guard.h"

    static inline uint64_t aclpool_thread_number(pthread_t thread) { return (uint64_t)thread; }
    static inline pthread_t aclpool_thread(uint64_t number) { return (pthread_t)number; }
    static inline int aclpool_is_leaving(void) { return atomic_load(&guard_closed); }

    /* Waits a little for the thread's end: 0, ETIMEDOUT, or an error. */
    static int aclpool_join(pthread_t thread, long wait_ns)
    {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += wait_ns;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        return pthread_timedjoin_np(thread, NULL, &until);
    }
    """
    ctypedef struct pthread_t:
        pass
    enum:
        ETIMEDOUT
        ESRCH
    int pthread_create(
        pthread_t *thread, void *attr, void *(*run)(void *) noexcept nogil, void *given
    ) nogil
    uint64_t aclpool_thread_number(pthread_t thread) nogil
    pthread_t aclpool_thread(uint64_t number) nogil
    int aclpool_join(pthread_t thread, long wait_ns) nogil
    bint aclpool_is_leaving() nogil
    void guard_run(void (*run)(void *) noexcept nogil, void *given) nogil
    void guard_close(int limit_ms) nogil
    void guard_reset() nogil
    int pthread_atfork(void (*prepare)() nogil, void (*parent)() nogil, void (*child)() nogil)

cdef long JOIN_WAIT_NS = 50_000_000     # longest wait in one call; between two, Ctrl-C is noticed
cdef int EXIT_LIMIT_MS = 500            # longest wait at exit for callbacks that are in Python

# The Run of each thread that was started and not stopped, by number.  The GIL protects the dict.
cdef dict running = {}


cdef class Run:
    """The function of a thread, its arguments, and its outcome."""

    cdef object function
    cdef object given
    cdef object failure         # type of the exception that the function raised, or None


cdef void guarded(void (*run)(void *) noexcept nogil, void *given) noexcept nogil:
    guard_run(run, given)


def _leave():
    with nogil:
        guard_close(EXIT_LIMIT_MS)


# A program's own handlers are registered later, so they run earlier and may still wait for
# callbacks.
atexit.register(_leave)
pthread_atfork(NULL, NULL, guard_reset)


cdef void *on_thread(void *given) noexcept nogil:
    """The pthread's start function; `given` is an owned reference to the thread's Run."""
    if not aclpool_is_leaving():
        thread_run(given)
    return NULL


cdef void thread_run(void *given) noexcept with gil:
    cdef Run run = <Run> given
    Py_DECREF(run)
    try:
        if run.given is None:
            run.function()
        else:
            run.function(run.given)
    except BaseException as failure:
        run.failure = type(failure)
    run.function = run.given = None


cdef object util_start_thread(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    cdef Value[2] a
    cdef const char *what = b"OO acl.util.start_thread fn args_list"
    cdef pthread_t thread
    cdef void *given
    cdef int ret
    take(what, args, n, names, a)
    if not callable(<object> a[0].o):
        raise refuse(what, 1, "callable", <object> a[0].o)
    cdef Run run = Run()
    run.function = <object> a[0].o
    run.given = <object> a[1].o
    Py_INCREF(run)
    given = <void *> run
    with nogil:
        ret = pthread_create(&thread, NULL, on_thread, given)
    if ret != 0:
        Py_DECREF(run)
        return 0, ret
    running[aclpool_thread_number(thread)] = run
    return aclpool_thread_number(thread), ret


cdef object util_stop_thread(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    cdef Value[1] a
    cdef uint64_t number
    cdef int ret = ETIMEDOUT
    take(b"K acl.util.stop_thread thread_id", args, n, names, a)
    number = a[0].k
    cdef Run run = running.pop(number, None)
    if run is None:
        return ESRCH
    try:
        while ret == ETIMEDOUT:
            with nogil:
                ret = aclpool_join(aclpool_thread(number), JOIN_WAIT_NS)
            PyErr_CheckSignals()
    except BaseException:
        if ret == ETIMEDOUT:
            running[number] = run       # so that a later `stop_thread` finds it again
        raise
    if run.failure is not None:
        raise RuntimeError(f"exception={run.failure!r},msg=thread call failed;")
    return ret
