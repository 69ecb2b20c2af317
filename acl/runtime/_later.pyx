"""Clean-up of deleted objects that a `__dealloc__` must not do itself.

The garbage collector may delete an object in any thread, at any line.  The thread may run a
callback, in which the driver refuses calls and a wait for the callback's own stream would never
end.  Or the thread may hold a lock.  So a `__dealloc__` never waits.  Clean-up that must wait for a
stream, or needs a thread that may call the driver, becomes an object of type `End` in a list.  The
next call of a user's thread into the package finishes the ends of the list that are ready.

A forked child clears the list, because the objects in it belong to the parent process.
"""

import os
from collections import deque

cdef extern from *:
    """
    static _Thread_local int callback_depth;
    static void depth_add(int change) { callback_depth += change; }
    static int depth(void) { return callback_depth; }
    """
    void depth_add(int change) nogil
    int depth() nogil

cdef enum:
    MOST_AT_ONCE = 16           # one call without `wait` tries at most this many, to stay short

# Statuses of ACL for "out of memory", "out of streams" and the like, which freed objects may cure.
SHORT = frozenset((207001, 207005, 207007, 207008))

cdef object ends = deque()
cdef bint draining = False


cdef void callback_enter() noexcept nogil:
    depth_add(1)


cdef void callback_leave() noexcept nogil:
    depth_add(-1)


cdef bint in_callback() noexcept nogil:
    return depth() > 0


cdef class End:
    """The clean-up of a deleted object."""

    cdef bint ready(self, bint wait) except -1:
        return True

    cdef int finish(self) except -1:
        return 0


cdef void end_later(End end) noexcept:
    global later_count
    ends.append(end)
    later_count += 1


cdef void end_soon(End end) noexcept:
    """Finish an end if it is ready and this thread is in no callback; else add it to the list.

    Never waits or raises, so `__dealloc__` may call it.
    """
    cdef bint ready = False
    if not in_callback():
        try:
            ready = end.ready(False)
            if ready:
                end.finish()
        except BaseException:
            ready = True  # do not add the end to the list, as another try would fail too
    if not ready:
        end_later(end)


cdef int later_drain(bint wait=False) except -1:
    """Try up to MOST_AT_ONCE ends of the list, or with `wait` all, and finish those that are ready.

    Returns at once if another thread does this.  Errors of `finish` are ignored; an exception of a
    signal handler is raised.
    """
    global draining, later_count
    cdef End end
    cdef int left = later_count
    if left == 0 or draining or in_callback():
        return 0
    if not wait and left > MOST_AT_ONCE:
        left = MOST_AT_ONCE
    draining = True
    try:
        while left > 0 and ends:
            left -= 1
            end = ends.popleft()
            later_count -= 1
            end_try(end, wait)
    finally:
        draining = False
    return 0


cdef bint later_made_room(int status) except -1:
    if status not in SHORT or later_count == 0 or in_callback():
        return False
    later_drain(True)
    return True


cdef int end_try(End end, bint wait) except -1:
    """Finish one end, which was taken out of the list.

    Put the end back if it is not ready, or if `ready` raises.  Raise the exceptions of `ready`
    except RuntimeError, for example that of a signal handler.
    """
    cdef bint ready = False
    try:
        ready = end.ready(wait)
    except RuntimeError:                        # the wait failed; a later call tries the end again
        end_later(end)
        return 0
    except BaseException:
        end_later(end)
        raise
    if not ready:
        end_later(end)
        return 0
    try:
        end.finish()
    except Exception:
        return 0
    return 0


def forget():
    """Clear the list in a forked child."""
    global later_count, draining
    ends.clear()
    later_count = 0
    draining = False


os.register_at_fork(after_in_child=forget)
