"""What is left to do for objects that were dropped: see `_later.pyx`."""

# How many ends are left; read under the GIL.
cdef int later_count


cdef class End:
    # True if nothing has to be waited for; `wait`: wait for it.  It may call the driver.
    cdef bint ready(self, bint wait) except -1
    # Give back what the object held; once, after `ready`.
    cdef int finish(self) except -1


# Finish an end now if that needs no wait and the thread may call the driver; else keep it.
cdef void end_soon(End end) noexcept
# Keep an end for a user's thread.
cdef void end_later(End end) noexcept
# In a user's thread: finish what is ready; `wait`: everything.
cdef int later_drain(bint wait=*) except -1

# After a refusal: whether to try again, as what was dropped held what is short; waits for it.
cdef bint later_made_room(int status) except -1

# Around each Python callback on a thread of the runtime: there the driver may not be called.
cdef void callback_enter() noexcept nogil
cdef void callback_leave() noexcept nogil
cdef bint in_callback() noexcept nogil
