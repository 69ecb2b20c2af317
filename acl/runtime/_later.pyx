"""What is left to do for objects that were dropped, and that a `__dealloc__` must not do itself.

The garbage collector may drop an object at any line of any thread: inside a callback, where the
driver refuses calls and a wait for the callback's own stream would never end, or in a thread that
holds a lock.  So a `__dealloc__` never waits.  What has to wait (for a stream, or for a thread that
may call the driver) becomes an `End` in a list, and the next call of a user's thread into the
package finishes those that are ready.

A forked child forgets the list: what is in it belongs to the parent process.
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
    MOST_AT_ONCE = 16           # ends that one call looks at, so that a long list costs no one much

# Statuses of a call that found too little of something that objects hold: memory, streams, events.
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
    """What is left of a dropped object."""

    cdef bint ready(self, bint wait) except -1:
        return True

    cdef int finish(self) except -1:
        return 0


cdef void end_later(End end) noexcept:
    global later_count
    ends.append(end)
    later_count += 1


cdef void end_soon(End end) noexcept:
    """Called by `__dealloc__`: nothing here waits, and nothing is raised."""
    cdef bint ready = False
    if not in_callback():
        try:
            ready = end.ready(False)
            if ready:
                end.finish()
        except BaseException:
            ready = True                        # it was tried; a later try would fail likewise
    if not ready:
        end_later(end)


cdef int later_drain(bint wait=False) except -1:
    """One thread at a time.  An end that fails is done with: nobody is left to tell."""
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
    """Finish one end, or put it back; what a signal raises in a wait puts it back, too."""
    cdef bint ready = False
    try:
        ready = end.ready(wait)
    except RuntimeError:                        # the driver's: a later try would fail likewise
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
    """In a forked child."""
    global later_count, draining
    ends.clear()
    later_count = 0
    draining = False


os.register_at_fork(after_in_child=forget)
