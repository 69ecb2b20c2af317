"""Clean-up that a `__dealloc__` leaves for later: see `_later.pyx`.

An *end* is one such clean-up.
"""

# Number of ends in the list; guarded by the GIL.
cdef int later_count


cdef class End:
    # Return True if `finish` may be called.  With `wait`, first wait until it may be called.
    # Calls the driver.
    cdef bint ready(self, bint wait) except -1
    # Free what the deleted object owned.  Called once, after `ready` returned True.
    cdef int finish(self) except -1


# Finish an end now if that needs no wait and the thread may call the driver; else add it to the
# list.
cdef void end_soon(End end) noexcept
# Add an end to the list; a later call of a user's thread finishes it.
cdef void end_later(End end) noexcept
# Finish the ends of the list that are ready, trying at most 16.  With `wait`, wait for each end and
# finish all.  Do nothing in a callback, or while another thread does this.
cdef int later_drain(bint wait=*) except -1

# For a call of ACL that returned `status`.  If it ran out of memory, streams or events and the list
# is not empty, finish all ends and return True: the caller then repeats the call.
cdef bint later_made_room(int status) except -1

# Called before and after each Python callback.  Callbacks run on a thread of the runtime, which
# must not call the driver.
cdef void callback_enter() noexcept nogil
cdef void callback_leave() noexcept nogil
cdef bint in_callback() noexcept nogil
