"""Clean-up that the deletion of an object left for later: see `_later.pyx`."""

# Number of ends in the list; guarded by the GIL.
cdef int later_count


cdef class End:
    # Return True if `finish` may be called; with `wait`, wait for that.  It may call the driver.
    cdef bint ready(self, bint wait) except -1
    # Free what the object owned; called once, after `ready` returned True.
    cdef int finish(self) except -1


# Finish an end now if that needs no wait and the thread may call the driver; else keep it.
cdef void end_soon(End end) noexcept
# Add an end to the list, which user threads finish.
cdef void end_later(End end) noexcept
# Finish the ends that are ready, in a user's thread; with `wait`, wait for all and finish them.
cdef int later_drain(bint wait=*) except -1

# After a call failed with `status`: if it ran out of memory, streams or events, finish all ends,
# and return True if the call is worth another try.
cdef bint later_made_room(int status) except -1

# Called around each Python callback on a thread of the runtime, which may not call the driver.
cdef void callback_enter() noexcept nogil
cdef void callback_leave() noexcept nogil
cdef bint in_callback() noexcept nogil
