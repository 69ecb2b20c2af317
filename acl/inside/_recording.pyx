"""Recordings of a pool: they can be started and ended at any time, and are copied out of its rings.

A recording consists of the last events of each stream, and of the blocks that are live at its end.
For each stream both are copied at one moment, under the arena's lock.  The blocks that were live
before the first event follow from them (`_recorded`), even if older events were overwritten.

Thread rule: `notes_start` and `notes_end` are called with the GIL held, so one at a time.  A thread
that holds an arena's lock takes no other lock.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

import time

from acl.core._arena cimport arena_set_mode
from acl.core.types cimport ARENA_RECORDED, Arena, Notes
from acl.runtime._device cimport fork_count, forked_raise, leaving
from acl.core._events cimport Event
from acl.bind.generated._libacl cimport aclrtGetSocName
from acl.core._lock cimport count_read, spin_enter, spin_leave
from acl.pool._pool cimport Pool
from acl.core._record cimport (
    arena_survey, pool_see, record_native_open, record_ns, record_ticks, ring_copy, ring_drop,
    ring_head, ring_ready,
)

__all__ = ["EVENT_BYTES", "Recording", "Tracking", "clock", "mark", "pool_names", "survey"]

EVENT_BYTES = sizeof(Event)
STACKS = {False: (False, False), "python": (True, False), "native": (False, True),
          "all": (True, True)}
MOST_EVENTS = 1 << 32           # most events that a ring can be asked to hold

ROLES = ("stream", "user", "capture", "framework")


cdef tuple stacks_wanted(object stacks):
    """Return two flags for `stacks`: are Python stacks wanted, are C stacks wanted."""
    if not isinstance(stacks, (bool, str)) or stacks not in STACKS:
        raise ValueError(f"stacks must be False, 'python', 'native' or 'all', not {stacks!r}")
    return STACKS[stacks]


cdef void notes_start(CorePool *pool, uint64_t capacity, bint python, bint native) noexcept:
    cdef Notes *notes = &pool.notes
    cdef uint32_t index
    spin_enter(&pool.lock)  # with `users` > 0, arenas that are added later are recorded too
    notes.users += 1
    notes.python += python
    notes.native += native
    notes.recordings += capacity > 0
    if capacity > 0 and notes.capacity == 0:
        notes.capacity = capacity
    spin_leave(&pool.lock)
    for index in range(count_read(&pool.arena_count)):
        arena_set_mode(pool.arenas[index], ARENA_RECORDED, 0)


cdef void notes_end(CorePool *pool, bint recorded, bint python, bint native) noexcept:
    cdef Notes *notes = &pool.notes
    cdef uint32_t index
    cdef bint last
    spin_enter(&pool.lock)
    notes.users -= 1
    notes.python -= python
    notes.native -= native
    notes.recordings -= recorded
    if notes.recordings == 0:
        notes.capacity = 0
    last = notes.users == 0
    spin_leave(&pool.lock)
    for index in range(count_read(&pool.arena_count)):
        # Setting the mode takes each arena's lock, so no thread uses the old capacity afterwards.
        arena_set_mode(pool.arenas[index], 0, ARENA_RECORDED if last else 0)


cdef void rings_ready(CorePool *pool, uint64_t capacity) noexcept:
    """Make the rings and write to them, so that no allocation waits for their page faults."""
    cdef uint32_t index, count = count_read(&pool.arena_count)
    with nogil:
        for index in range(count):
            ring_ready(pool.arenas[index], capacity, count)


cdef tuple arena_live(Arena *arena, uint32_t number, bint pages):
    """Return an arena's live blocks, with `pages` also its mapped pages, as Events in a bytearray.

    The second value is the number of events that were recorded before.
    """
    cdef uint64_t head = 0, room = 64, count = 0
    cdef Event *out
    cdef uint64_t i
    while True:
        rows = bytearray(room * sizeof(Event))
        out = <Event *> <char *> rows
        with nogil:
            count = arena_survey(arena, out, room, pages, &head)
        if count <= room:
            break
        room = count + count // 8 + 64
    for i in range(count):
        out[i].number = number
    del rows[count * sizeof(Event):]
    return rows, head


def survey(Pool pool not None):
    """Return the live blocks of all streams, as Events in bytes."""
    cdef uint32_t i
    if pool.made != fork_count:
        forked_raise(pool)
    return b"".join([
        arena_live(pool.core.arenas[i], i, False)[0]
        for i in range(count_read(&pool.core.arena_count))])


def clock():
    """Return the present clock ticks, by which allocations are timed, and a tick's seconds."""
    cdef uint64_t now = record_ticks()
    # Measure a tick after `now`: ticks before the clock was started have no time.
    cdef uint64_t span = <uint64_t> 1 << 32
    return now, (record_ns(now + span) - record_ns(now)) / span / 1e9


def mark(Pool pool not None):
    """Mark the live blocks with the present time.

    Return the time in clock ticks and in nanoseconds, and the number of live blocks.
    """
    cdef uint64_t now, count
    pool.open_check()
    with nogil:
        now = record_ticks()
        count = pool_see(pool.core, now)
    return now, record_ns(now), count


def pool_names(Pool pool not None):
    """Return the tags' names, the stream handles in the order of `survey`, and True if tracked."""
    cdef uint32_t i
    if pool.core is NULL:
        raise ValueError("the Pool is closed")
    handles = [<size_t> pool.core.arenas[i].stream
               for i in range(count_read(&pool.core.arena_count))]
    return list(pool.tag_names), handles, pool.core.notes.users > 0


cdef dict pool_facts(Pool pool):
    """Return the facts about the pool that a file contains."""
    cdef const char *soc = aclrtGetSocName()
    return {
        "device": pool.device, "soc": (<bytes> soc).decode(errors="replace") if soc else "",
        "granule": pool.core.options.granule, "limit": pool.core.options.limit,
        "headroom": pool.core.options.headroom, "tags": list(pool.tag_names),
    }


cdef dict arena_part(Arena *arena, uint32_t number, uint64_t capacity, uint64_t begun):
    """Return one stream's part of a recording: its last events, and the blocks live after them.

    Events with a number below `begun` belong to an earlier recording.
    """
    cdef uint64_t head = 0, first, start
    cdef Event *out
    cdef uint64_t i
    rows, head = arena_live(arena, number, True)
    first = head - capacity if head > capacity else 0
    first = min(max(first, begun), head)
    events = bytearray((head - first) * sizeof(Event))
    out = <Event *> <char *> events
    with nogil:
        start = ring_copy(arena, out, first, head)
    for i in range(head - start):
        out[i].number = number
    del events[(head - start) * sizeof(Event):]
    return {"handle": <size_t> arena.stream, "kind": ROLES[arena.role],
            "lost": start - min(begun, start), "events": events, "live": rows}


@cython.final
@cython.no_gc_clear             # `__dealloc__` needs the pool
cdef class Recording:
    """The last events of a pool; `Pool.record` starts a recording.

    As a context manager, it stops at the end of its block.  While it runs, `events` and `save` use
    the events so far.  A pool may have several recordings; they share a ring, so later ones keep at
    most as many events as the first.
    """

    cdef readonly Pool pool
    cdef readonly object stacks         # argument of `Pool.record`
    cdef readonly object capacity       # most events of each stream
    cdef bint python
    cdef bint native
    cdef bint running
    cdef int made
    cdef uint64_t begun                 # the beginning, in clock ticks
    cdef uint64_t ended         # the end or, while it runs, the last `snapshot`, in clock ticks
    cdef object began                   # the beginning, in nanoseconds of Unix time
    cdef list heads             # by stream: number of events in the ring before the beginning
    cdef list parts                     # the part of each stream (`arena_part`); valid once stopped
    cdef object cached          # the result of the first `snapshot` after `stop`; None before

    def __init__(self, Pool pool not None, *, capacity=1 << 20, stacks=False):
        wanted = stacks_wanted(stacks)
        if not hasattr(capacity, "__index__"):
            raise TypeError(f"capacity must be an int, not {type(capacity).__name__}")
        if not 1 <= capacity <= MOST_EVENTS:
            raise ValueError(f"capacity must be from 1 to {MOST_EVENTS} events, not {capacity}")
        pool.open_check()
        self.pool = pool
        self.stacks = stacks
        self.python, self.native = wanted
        self.capacity = 1 << (int(capacity) - 1).bit_length()
        if self.native and not record_native_open():
            raise MemoryError("host memory for C stacks")
        self.made = fork_count
        rings_ready(pool.core, self.capacity)
        if pool.core.notes.capacity > 0:
            self.capacity = min(self.capacity, pool.core.notes.capacity)
        self.heads = [ring_head(pool.core.arenas[i])
                      for i in range(count_read(&pool.core.arena_count))]
        self.began = time.time_ns()
        self.begun = record_ticks()
        self.running = True
        notes_start(pool.core, self.capacity, self.python, self.native)

    def __dealloc__(self):
        if self.running and self.made == fork_count and not leaving:
            recording_end(self)

    def stop(self):
        """Stop the recording and keep its events; a second call does nothing."""
        if not self.running:
            return
        if self.made != fork_count:
            forked_raise(self)
        parts = self.take()
        if self.running:                        # no other call of `stop` has ended it meanwhile
            self.parts = parts
            recording_end(self)

    cdef list take(self):
        cdef uint32_t i
        self.ended = record_ticks()
        known = len(self.heads)
        return [arena_part(self.pool.core.arenas[i], i, self.capacity,
                           self.heads[i] if i < known else 0)
                for i in range(count_read(&self.pool.core.arena_count))]

    @property
    def stopped(self):
        """True once `stop` has run."""
        return not self.running

    def snapshot(self):
        """Return the recording, or its events so far if it runs, as `_recorded.Recorded`."""
        from acl.inside._books import ooms
        from acl.inside._recorded import Recorded

        if self.cached is not None:
            return self.cached
        if self.pool is None:
            raise ValueError("the Recording was not made by Pool.record")
        if self.running and self.made != fork_count:
            forked_raise(self)
        parts = self.take() if self.running else self.parts
        if parts is None:                       # another thread has made `cached` meanwhile
            return self.cached
        recorded = Recorded(
            pool_facts(self.pool), parts, self.began, (self.begun, self.ended),
            (record_ns(self.begun), record_ns(self.ended)), ooms(self.pool))
        if not self.running:
            self.cached = recorded
            self.parts = None
        return recorded

    @property
    def events(self):
        """Return all events in order of time, as a list of `RecordedEvent`."""
        return self.snapshot().events()

    @property
    def lost(self):
        """Number of events that newer ones have overwritten."""
        return self.snapshot().lost

    def save(self, path):
        """Write the recording to a file.

        Parameters
        ----------
        path : str or path
            ``.npz``: a trace for ``aclpool replay`` and ``aclpool view``, in the format of
            `docs/recording-format.md`; ``.pickle`` or ``.pkl``: a PyTorch memory snapshot.
        """
        self.snapshot().save(path)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()

    def __repr__(self):
        state = "running" if self.running else "stopped"
        return f"<Recording {state} capacity={self.capacity} stacks={self.stacks!r}>"


@cython.final
@cython.no_gc_clear             # `__dealloc__` needs the pool
cdef class Tracking:
    """Keeps for each new block when and where it was allocated; `Pool.track` starts it."""

    cdef readonly Pool pool
    cdef bint python
    cdef bint native
    cdef bint running
    cdef int made

    def __init__(self, Pool pool not None, *, stacks="python"):
        self.python, self.native = stacks_wanted(stacks)
        pool.open_check()
        self.pool = pool
        if self.native and not record_native_open():
            raise MemoryError("host memory for C stacks")
        self.made = fork_count
        self.running = True
        notes_start(pool.core, 0, self.python, self.native)

    def __dealloc__(self):
        if self.running and self.made == fork_count and not leaving:
            notes_end(self.pool.core, False, self.python, self.native)

    def stop(self):
        """Stop tracking; a second call does nothing.  Tracked blocks keep their age and stack."""
        if self.running:
            if self.made != fork_count:
                forked_raise(self)
            self.running = False
            notes_end(self.pool.core, False, self.python, self.native)

    def detach(self):
        """Continue tracking as long as the pool exists, also without this object."""
        self.running = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()


cdef void recording_end(Recording recording) noexcept:
    cdef uint32_t i
    cdef CorePool *core = recording.pool.core
    recording.running = False
    notes_end(core, True, recording.python, recording.native)
    if core.notes.recordings > 0:
        return
    for i in range(count_read(&core.arena_count)):
        ring_drop(core.arenas[i])
