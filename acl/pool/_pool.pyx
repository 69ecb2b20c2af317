"""`Pool`, the Python class of the allocator.

A pool belongs to one device and has an arena for each stream.  `register` gives the arena and four
C functions to ACL, so that ACL allocates from the arena for all that runs on the stream.  No code
of this file runs inside ACL's callbacks.  Code that may call the driver releases the GIL.  The
out-of-memory hook is called after the failed allocation has returned.

The pool object is kept alive until its streams are unregistered, and its memory until the last
block is freed.  When the interpreter exits, the system frees everything.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

import itertools
import os

from acl.core._arena cimport (
    arena_find, arena_offer, arena_set_mode, pool_arena, pool_arena_in, pool_create, pool_drop,
    pools_retry,
)
from acl.core._trim cimport pool_decay, pool_reset_peaks
from acl.runtime._buffer cimport buffer_wrap
from acl.core._check cimport pool_check
from acl._core cimport arena_alloc, arena_free, arena_try
from acl.core.types cimport (
    ARENA_CLOSED, ARENA_TAGGED, ARENA_UNLOADING, Block, PoolOptions, ROLE_STREAM, ROLE_USER, TAGS,
)
from acl.runtime._device cimport current_device, current_ensure, fork_count, forked_raise, leaving
from acl.core._driver cimport arena_is_of, context_here
from acl.core._guard cimport GUARD_BYTES
from acl.bind._error cimport check, host_memory_error
from acl.pool._guarded cimport buffer_guard, buffers_close, buffers_flush, guarded_back, turn_of
from acl.bind.generated._libacl cimport (
    ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_SUCCESS, aclError, aclrtContext,
)
from acl.core._lock cimport count_read, spin_enter, spin_leave
from acl.pool._options cimport options_fill, soc_padding, stream_on, wanted_bytes
from acl.core._order cimport block_share_in, waiting_sync
from acl.core._record cimport block_own, record_native_open
from acl.pool._registry cimport arena_register, arena_unregister, handle_of, handle_on
from acl.pool._registry cimport register_check
from acl.pool._refusals cimport books, close_told, trim_told
from acl.pool._stacks cimport stack_enter, stack_leave
from acl.runtime._stream cimport stream_raw
from acl.core._tally cimport budget_set
from acl.pool._tags cimport stream_name, tag_current, tagging_make

from acl.runtime._device import Device, ordinal_of
from acl.pool._refusals import refusals_prepare
from acl.bind._log import debug as debug_log, warning as warning_log
from acl.pool._options import bytes_of, early_frees_default, guard_every, name_of, share_of
from acl.pool._registry import every, open_pools, registered

__all__ = ["Pool", "open_pools", "use_pool"]

numbers = itertools.count()
OTHER_TAGS = "(other tags)"


cdef Pool pool_adopt(CorePool *core):
    """Return a Pool for a core that C code made."""
    cdef Pool pool = Pool.__new__(Pool)
    pool.core = core
    pool.device = core.options.device
    pool.padding = soc_padding()
    pool.enlist(None)
    return pool


cdef void block_back(void *arena, void *block) noexcept nogil:
    arena_free(<Arena *> arena, <Block *> block)


# ---- the pool -----------------------------------------------------------------------------------

@cython.final
cdef class Pool:
    """Device memory for the streams of one device.

    Parameters
    ----------
    device : int
        Ordinal of the device; it becomes current in this thread.
    limit : int or str, optional
        Most bytes of device memory that the pool may hold, such as ``"8GiB"``, or ``"40%"`` of the
        device.  If not given, ``ACL_POOL_LIMIT`` is read; without that there is no limit.
    headroom : int or str, optional
        Bytes that the pool leaves free on the device for HCCL, GE and other users; default 0.
    granule : int or str, optional
        Page size, the unit in which memory is allocated from the driver and moved: a power of two;
        by default ``"2MiB"``.  If the live peak has 512 pages, about 2 % is wasted; with 64 pages,
        3 to 10 %.  ``"auto"``: the largest page size of which `limit` holds 512.
    pages : {"huge", "normal", "huge1g"}
        The kind of memory that backs a page; ``"huge1g"`` needs a granule of 1 GiB.
    virtual : int or str, optional
        Bytes of addresses, not memory, to reserve for each stream: by default four times the limit
        or the device's memory; less with more than 16 streams.  If they are used up, more are
        reserved.
    preallocate : int or str
        Bytes to allocate from the device at the start, at most `limit`.
    stream : Stream, optional
        The stream that gets the preallocated memory; by default the first that uses the pool.
    steal : bool
        Whether free pages may move to other addresses.  Switch it off if the pool's memory is
        registered for RDMA or shared by IPC.
    views : bool or str
        Whether a free page may be mapped at a second address of its stream, instead of being moved.
        That needs no wait, and no driver call when shapes repeat.  ``"always"``: also if they do
        not repeat.  Switch it off if the driver or device does not support it; `steal=False`
        switches it off too.
    early_frees : bool, optional
        Whether memory is freed before the work that uses it is queued, as with
        ``MAX_RUNTIME_CORE_NUMBER`` above 1 (the default reads that variable) or a framework's task
        queue.  Then no page is moved or given back, except by ``trim(drained=True)``.
    watch_captures : bool
        Ask at each allocation whether the stream is being captured, for programs that capture
        without `Pool.capture`.  It costs a driver call each time.
    decay_ms : int, optional
        A background thread gives memory back that was not needed for this long; 0: never.
    sync_timeout_ms : int
        Longest wait for a stream inside an allocation; -1 for no limit.  A caller that holds the
        GIL, as CANN's own module does, waits 200 ms at most: a Python callback may need the GIL.
    segments : bool
        Do not use virtual memory, as if the driver had none.  It wastes more; for comparisons.
    debug : bool or str, optional
        Guard buffers and the blocks of registered streams: all (True or ``"all"``), or one in N
        (``"sample:N"``).  Overflows, writes to freed blocks, double frees and foreign pointers are
        logged (``acl.guard``), kept for `guard_findings` and counted.  If all are guarded, each
        free waits for its stream; samples wait for nothing and may stay on in production.  The
        default reads the variable ``ACL_POOL_DEBUG``.
    name : str, optional
        The pool's name in ledger, metrics and log; ``"pool-0"`` and so on if not given.
    """

    def __cinit__(self):
        self.made = fork_count
        self.tags = {"": 0}
        self.tag_names = [""]
        self.budgeted = frozenset()

    def __init__(self, device=0, limit=None, *, headroom=None, granule=None, pages="huge",
                 virtual=None, preallocate=0, steal=True, views=True, early_frees=None,
                 watch_captures=False, decay_ms=None, sync_timeout_ms=5000, segments=False,
                 debug=None, name=None, stream=None):
        cdef PoolOptions options
        if self.core is not NULL or self.is_closed:
            raise ValueError("the Pool exists already")
        ordinal = ordinal_of(device)
        current_ensure(NULL)
        if current_device() != ordinal:
            Device(ordinal).use()
        given = {
            "limit": limit, "headroom": headroom, "granule": granule, "pages": pages,
            "virtual": virtual, "steal": steal, "watch_captures": watch_captures, "views": views,
            "early_frees": early_frees_default() if early_frees is None else early_frees,
            "sync_timeout_ms": sync_timeout_ms, "segments": segments, "preallocate": preallocate,
            "decay_ms": decay_ms, "name": name}
        options_fill(&options, ordinal, given)
        with nogil:
            pools_retry()
        self.core = pool_create(&options, NULL)
        if self.core is NULL:
            raise host_memory_error("a pool")
        self.device = ordinal
        self.enlist(given["name"])
        self.guard_every = guard_every(debug)
        self.core.options.guard_every = self.guard_every
        self.guarded = self.guard_every != 0
        if self.guarded:                        # record stacks for the findings
            self.core.notes.python += 1
            record_native_open()
        self.padding = self.core.options.padding = soc_padding()
        if given["preallocate"]:                # less the padding, as `alloc` adds it again
            self.alloc(max(1, given["preallocate"] - self.padding), stream).close()
            if stream is None and not self.guarded:  # a guarded buffer would still be in quarantine
                arena_offer(self.recent)
        if given["decay_ms"]:
            from acl.pool._scopes import Decay
            self.decay = Decay(self, given["decay_ms"])
        # Pass the name, not the pool: a handler that keeps the log record would keep the pool
        # alive.
        debug_log("pool", "%s made on device %d", self.name, self.device)

    def __dealloc__(self):
        # If the pool cannot be destroyed yet (live blocks, work in progress), `pools_retry` does it
        # later.
        if self.core is not NULL and not leaving and self.made == fork_count:
            with nogil:
                buffers_close(self.core)
                pool_drop(self.core)

    cdef int enlist(self, object name) except -1:
        """Give the pool a name and a number, and add it to the list that reports read."""
        self.number = next(numbers)
        self.name = name_of(name, self.number, {one.name for one in open_pools() if not one.closed})
        self.core.life.orphan = False
        refusals_prepare()
        every[<size_t> self.core] = self
        if "ACL_POOL_LEAKS" in os.environ or "ACL_POOL_RECORD" in os.environ:
            from acl.inside._asked import watch

            watch(self)
        return 0

    cdef int open_check(self) except -1:
        if self.made != fork_count:
            forked_raise(self)
        if self.core is NULL or self.is_closed:
            raise ValueError("the Pool is closed")
        return 0

    cdef Arena *arena_of(self, aclrtStream stream, aclrtContext known=NULL) except NULL:
        """Return the arena that `alloc` uses for a stream; `known`: its context, or NULL."""
        cdef Arena *arena = self.recent
        if arena is not NULL and arena_is_of(
                arena, stream, NULL if stream is not NULL else context_here(self.core)):
            return arena
        self.open_check()
        device_check(self, stream)
        arena = pool_arena_in(
            self.core, stream, ROLE_USER if self.core.options.early_frees else ROLE_STREAM, known)
        if arena is NULL:
            raise host_memory_error("an arena")
        self.recent = arena
        return arena

    cdef uint16_t tag_index(self, object tag, str argument="tag") except? 0xFFFF:
        if not isinstance(tag, str):
            raise TypeError(f"{argument} must be a str, not {type(tag).__name__}")
        index = self.tags.get(tag)
        if index is not None:
            return index
        if len(self.tag_names) == TAGS:
            return TAGS - 1
        if len(self.tag_names) == TAGS - 1:
            # Statistics have TAGS entries, so all names after the first 62 share the last entry.
            self.tag_names.append(OTHER_TAGS)
            return TAGS - 1
        self.tags[tag] = len(self.tag_names)
        self.tag_names.append(tag)
        return self.tags[tag]

    cdef int tagging_begin(self) except -1:
        if not self.core.tagging:
            self.core.tagging = True
            self.set_modes(ARENA_TAGGED, 0)
        return 0

    def tag(self, name):
        """Context manager: allocations inside it that have no tag of their own get this one.

        It applies to `alloc` in this thread or asyncio task, and to ACL's allocations in calls of
        this thread.  In a coroutine ACL's allocations get the tag only in calls of `Model` and
        `Op`, because other tasks run in between.  While it is open, each allocation by ACL in this
        thread costs about 10 ns more.

        Parameters
        ----------
        name : str
            The name in ledger, metrics and reports.  A pool counts its first 62 names separately;
            all later ones count as ``"(other tags)"``.
        """
        self.open_check()
        index = self.tag_index(name, "name")
        self.tagging_begin()
        return tagging_make(self, self.core, index)

    def tag_stream(self, stream, name):
        """Name the stream's blocks that have no tag of their own; None removes the name.

        Reports look the name up when they are made, so it costs nothing and applies to live blocks
        too.  A stream without a name has the name of the model that ran there last.

        Parameters
        ----------
        stream : Stream or int, optional
            None for the default stream.
        name : str or None
            As for `tag`.
        """
        cdef aclrtStream raw = handle_of(stream)
        cdef uint16_t index = 0 if name is None else self.tag_index(name, "name")
        self.open_check()
        device_check(self, raw)
        if pool_arena(self.core, raw, ROLE_STREAM) is NULL:
            raise host_memory_error("an arena")
        stream_name(self.core, raw, index, True)

    def budget(self, tag, limit):
        """Bound the live bytes of a tag: only that tag's allocations fail beyond the limit.

        Live blocks of the tag count from the start.  If a `Model`'s name has a budget, the inputs,
        outputs and workspaces of its runs count in it, unless a `tag` is open.  Allocations of a
        tag with a budget take a slower path; others are as fast as before.

        Parameters
        ----------
        tag : str
            A name as for `tag`, one of the first 62 names of the pool.
        limit : int, str or None
            Bytes, as the pool rounds them up to 512, such as ``"2GiB"``, or ``"40%"`` of the
            device; None for no limit.
        """
        cdef uint16_t index
        self.open_check()
        bytes = 0 if limit is None else share_of(limit, "limit", self.core.options.device_bytes)
        if limit is not None and bytes < 512:
            raise ValueError(f"limit must be at least 512 bytes, or None, not {limit!r}")
        index = self.tag_index(tag)
        if index in (0, TAGS - 1):
            raise ValueError(f"tag must be one of the first 62 names of the pool, not {tag!r}")
        self.tagging_begin()
        budget_set(self.core, index, bytes)
        self.budgeted = self.budgeted | {tag}

    # -- memory

    def alloc(self, nbytes, Stream stream=None, *, tag=None):
        """Allocate a `Buffer` ordered by `stream`.  Closing or dropping it frees the memory.

        Parameters
        ----------
        nbytes : int or str
            Bytes; the pool adds the bytes that the chip needs behind a buffer.
        stream : Stream, optional
            The default stream if not given.
        tag : str, optional
            The name under which ledger and `stats` count it; by default that of the open `tag`.

        Raises
        ------
        OutOfMemoryError
            Also after the hook of `on_oom` was called; `last_oom` says what was tried.
        """
        return self.take(wanted_bytes(nbytes), stream, tag)

    cdef Buffer take(self, size_t size, Stream stream, object tag):
        cdef aclrtStream raw = NULL
        cdef Arena *arena
        cdef Block *block
        cdef size_t bytes = (size + 31) // 32 * 32 + self.padding
        cdef uint16_t index = 0
        cdef bint turn
        if tag is not None:
            index = self.tag_index(tag)
        elif self.core is not NULL and self.core.tagging:
            index = tag_current(self)
        if stream is not None:
            stream_raw(stream, &raw)
            stream_on(stream, self.device)
        arena = self.arena_of(raw, NULL if stream is None else stream.context)
        if self.is_closed or self.made != fork_count:
            self.open_check()
        turn = self.guarded and turn_of(arena, size)
        if turn:
            bytes = size + GUARD_BYTES
        block = arena_try(arena, bytes, index)
        if block is NULL:
            block = take_slow(self, arena, raw, bytes, index)
        if turn:
            buffer_guard(arena, block, size)
        block_own(block, bytes - size)
        return buffer_wrap(block.addr, size, guarded_back if turn else block_back, arena, block,
                           self, stream, self.device)

    def empty(self, shape, dtype="float32", Stream stream=None, *, tag=None):
        """Allocate an `Array` of this shape and type in device memory, not initialised."""
        from acl.runtime._array import Array
        return Array(self, shape, dtype, stream, tag)

    def record_stream(self, Buffer buffer not None, stream):
        """Note that work on another stream uses the buffer.

        After the buffer is freed, its memory is used again only once all work is complete that was
        queued on that stream before the free.
        """
        cdef aclrtStream raw = handle_on(stream, self.device)
        cdef aclrtContext context = home_of(stream)
        cdef void *arena = buffer.owner
        cdef void *block = buffer.block
        buffer.open_check()
        self.open_check()
        if buffer.keeper is not self:
            raise ValueError("the Buffer is not of this pool")
        with nogil:
            shared = block_share_in(<Arena *> arena, <Block *> block, raw, context)
        if not shared:
            raise host_memory_error("a note on a buffer")

    # -- registration

    def register(self, stream, *, bint replace=False):
        """Serve a stream: from now on ACL allocates from the pool for all that it runs there.

        Register right after making the stream, before anything runs on it: GE keeps the allocator
        that it finds at the first single operator.  A stream may be registered again at any time.

        Parameters
        ----------
        stream : Stream or int
            A stream of this device; not the default stream, for which ACL asks no allocator.
        replace : bool
            Whether to take over a stream that another pool serves.
        """
        cdef aclrtStream raw = handle_on(stream, self.device)
        cdef Arena *arena
        cdef aclError status
        self.open_check()
        register_check(self, raw, replace)
        arena = pool_arena_in(self.core, raw, ROLE_STREAM, home_of(stream))
        if arena is NULL:
            raise host_memory_error("an arena")
        with nogil:
            status = arena_register(arena, raw)
        check(status, "aclrtAllocatorRegister")
        registered[<size_t> raw] = self

    def unregister(self, stream):
        """End the registration; memory that was allocated before can still be freed.

        Do it once the stream's work is done and its models are unloaded.  If the stream is not
        registered, nothing happens.
        """
        cdef aclrtStream raw = handle_of(stream)
        cdef Arena *arena
        cdef aclError status = ACL_SUCCESS
        if self.core is NULL or raw is NULL:
            return
        arena = arena_find(self.core, raw, ROLE_STREAM)
        if arena is not NULL:
            with nogil:
                status = arena_unregister(arena, raw)
        if registered.get(<size_t> raw) is self:
            del registered[<size_t> raw]
        check(status, "aclrtAllocatorUnregister")

    def serves(self, stream):
        """Return True if Python or C code registered the stream, or its handle, with this pool."""
        cdef aclrtStream raw = handle_of(stream)
        cdef Arena *arena = NULL
        if self.core is not NULL and not self.is_closed and self.made == fork_count:
            arena = arena_find(self.core, raw, ROLE_STREAM)
        return arena is not NULL and arena.ending.registered

    @property
    def streams(self):
        """Handles of the registered streams."""
        self.open_check()
        return tuple(
            <size_t> self.core.arenas[i].stream for i in range(count_read(&self.core.arena_count))
            if self.core.arenas[i].ending.registered)

    def use(self):
        """Register every stream that is made from now on; see `use_pool`."""
        return use_pool(self)

    def capture(self, stream):
        """Return a `Capture`: while open, the stream's allocations belong to the captured graph."""
        from acl.pool._capture import Capture
        self.open_check()
        return Capture(self, stream)

    def release_capture(self, capture):
        """Make a capture's blocks ordinary memory again, once its graph is destroyed."""
        from acl.pool._capture import release_of
        release_of(self, capture)

    def unloading(self):
        """Context manager for unloading a model: frees inside it are deferred.

        They take effect once the device is synchronised, as the model's own streams may still use
        the memory.
        """
        from acl.pool._scopes import Unloading
        self.open_check()
        return Unloading(self)

    cdef int set_modes(self, uint32_t set, uint32_t clear) except -1:
        cdef uint32_t i             # the caller's GIL keeps other threads from changing modes
        spin_enter(&self.core.lock)
        self.core.modes = (self.core.modes & ~clear) | set
        spin_leave(&self.core.lock)
        for i in range(count_read(&self.core.arena_count)):
            arena_set_mode(self.core.arenas[i], set, clear)
        return 0

    def unload_begin(self):
        """Defer every free until the device is synchronised."""
        self.open_check()
        self.unloads += 1
        self.set_modes(ARENA_UNLOADING, 0)

    def unload_end(self):
        """Synchronise the device and complete the frees deferred since `unload_begin`."""
        cdef bint done
        self.open_check()
        self.unloads -= self.unloads > 0
        if self.unloads == 0:       # otherwise another model is still being unloaded
            self.set_modes(0, ARENA_UNLOADING)
        with nogil:
            done = waiting_sync(self.core, False)
        return bool(done)

    # -- giving memory back, checks

    def trim(self, to=0, *, idle=False, drained=False):
        """Give unused memory back to the device.

        Parameters
        ----------
        to : int or str
            Bytes that may stay reserved.
        idle : bool
            True: take memory only from idle streams.  False: wait for busy streams first.
        drained : bool
            The framework's task queue is empty, so arenas with early frees give pages back too.

        Returns
        -------
        int
            Bytes that were given back; the log says if a wait for a stream timed out.
        """
        cdef size_t target = bytes_of(to, "to")
        self.open_check()
        current_ensure(NULL)
        return trim_told(self.core, self.name, target, not idle, bool(drained))

    def sleep(self, tags=None, *, offload=True, drained=False):
        """Give back the memory of blocks of `tags`, or all; addresses are kept: docs/sleep.md."""
        from acl.pool._sleep import pool_sleep
        return pool_sleep(self, tags, offload, drained)

    def wake(self, tags=None):
        """Give sleeping blocks of `tags`, or all, memory and contents again: docs/sleep.md."""
        from acl.pool._sleep import pool_wake
        return pool_wake(self, tags)

    def decay_tick(self):
        """Give back memory that was not needed since the last decay step; return its bytes."""
        cdef size_t freed
        self.open_check()
        current_ensure(NULL)
        with nogil:
            freed = pool_decay(self.core)
        return freed

    def reset_peak(self):
        """Set the peaks of `stats` to what is live now."""
        self.open_check()
        with nogil:
            pool_reset_peaks(self.core)

    def check(self):
        """Check every block; return 0, or the number of the first broken invariant.

        No other thread may use the pool during the call.
        """
        cdef uint32_t broken
        self.open_check()
        with nogil:
            broken = pool_check(self.core)
        return broken

    def on_oom(self, hook):
        """Call `hook(report)` when `alloc` finds no memory, then try once more; None for no hook.

        The hook runs outside every callback and lock of the pool.  It may free buffers, trim, or
        synchronise, but must not run or close the `Model` whose run found no memory.
        """
        if hook is not None and not callable(hook):
            raise TypeError(f"hook must be callable or None, not {type(hook).__name__}")
        self.oom_hook = hook

    cdef bint oom_tell(self, object report) except -1:
        """Call the hook with the report; return False if there is no hook or no report."""
        if self.oom_hook is None or report is None:
            return False
        self.oom_hook(report)
        self.open_check()
        return True

    def last_oom(self):
        """Return the last `OomReport`, of `alloc` or ACL's allocations; None if none has failed."""
        from acl.inside import _books

        self.open_check()
        return _books.last_oom(self)

    def stats(self):
        """Return what the pool holds now, and what it has done so far.

        Returns
        -------
        PoolStats
            Counted block by block, under the lock of each arena; `acl.metrics.read` takes no lock.
        """
        from acl.inside import _books

        self.open_check()
        return _books.stats(self)

    def histograms(self):
        """Return the sizes of all allocations and the times of slow ones, as `PoolHistograms`."""
        from acl.inside import _tallies

        return _tallies.histograms(self)

    def peak(self):
        """Return the highest live bytes since the start or `reset_peak`, as `PoolPeak`."""
        from acl.inside import _tallies

        return _tallies.peak(self)

    def record(self, *, capacity=1 << 20, stacks=False):
        """Start a `Recording` of every allocation, free and moved page.

        Parameters
        ----------
        capacity : int
            Most events kept for each stream, 64 bytes each, rounded up to a power of two; new
            events replace the oldest.
        stacks : {False, "python", "native", "all"}
            Which stacks to note with each allocation.  A stack costs some microseconds.
        """
        from acl.inside._recording import Recording

        return Recording(self, capacity=capacity, stacks=stacks)

    def track(self, *, stacks="python"):
        """Start a `Tracking`: until it stops, the age and stack of new blocks are kept."""
        from acl.inside._recording import Tracking

        return Tracking(self, stacks=stacks)

    def mark(self):
        """Return a `Mark` of this moment, for `leaks(since=...)`."""
        from acl.inside import _leaks

        return _leaks.mark_of(self)

    def leaks(self, *, older_than=None, since=None):
        """Return the live blocks by tag, size class, stack and age, as `LeakReport`.

        Parameters
        ----------
        older_than : float, optional
            Only blocks known to be live for this many seconds; the age is known of tracked blocks.
        since : Mark, optional
            Only blocks that were allocated after this mark; exact for all blocks.
        """
        from acl.inside import _leaks

        return _leaks.leaks_of(self, older_than, since)

    def expect_no_leaks(self, *, stacks="python"):
        """Context manager: raise `LeakError` if memory allocated inside it is live at its end."""
        from acl.inside._leaks import ExpectNoLeaks

        return ExpectNoLeaks(self, stacks)

    def blocks(self, stream=None):
        """Return every block of a stream's memory, in address order, as `BlockInfo`."""
        from acl.inside import _books

        self.open_check()
        return _books.blocks(self, stream)

    def close(self):
        """Unregister all streams and give all free memory back; a second call does nothing.

        Buffers that are alive stay valid; their memory is freed once the last of them and this
        object are deleted.  The log warns of live blocks and of busy streams.
        """
        if self.is_closed or self.core is NULL:
            return
        if self.made != fork_count:
            forked_raise(self)
        current_ensure(NULL)                    # first, as it raises inside a callback
        if self.decay is not None:
            self.decay.stop()
            self.decay = None
        mine = [handle for handle, pool in list(registered.items()) if pool is self]
        for handle in {*self.streams, *mine}:
            self.unregister(handle)
        self.is_closed = True
        self.recent = NULL
        self.set_modes(ARENA_CLOSED, 0)
        close_told(self.core, self.name)
        segments_tell(self)

    @property
    def closed(self):
        """True once `close` was called."""
        return bool(self.is_closed)

    @property
    def limit(self):
        """Most bytes that the pool may hold, 0: no limit; may be set, also as ``"8GiB"``.

        Setting a limit below what the pool holds gives nothing back: call `trim`.
        """
        return 0 if self.core is NULL else self.core.options.limit

    @limit.setter
    def limit(self, value):
        self.open_check()
        wanted = 0 if value is None else share_of(value, "limit", self.core.options.device_bytes)
        if wanted and wanted < self.core.options.granule:
            raise ValueError(
                f"limit must be at least one granule ({self.core.options.granule} bytes), "
                f"not {value!r}")
        self.core.options.limit = wanted

    @property
    def headroom(self):
        """Bytes that the pool leaves free on the device; may be set."""
        return 0 if self.core is NULL else self.core.options.headroom

    @headroom.setter
    def headroom(self, value):
        self.open_check()
        self.core.options.headroom = share_of(value, "headroom", self.core.options.device_bytes)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        if self.is_closed or self.core is NULL:
            return "<Pool closed>"
        return f"<Pool {self.name!r} device={self.device} reserved={self.core.source.reserved}>"


cdef int segments_tell(Pool pool) except -1:
    """If the driver has no virtual memory, so that the pool works without it, log that once."""
    if pool.core.no_virtual and not pool.core.options.segments and not pool.segments_told:
        pool.segments_told = True
        warning_log("pool", "%s works in segments, which wastes more: device %d has no virtual "
                    "memory", pool.name, pool.device)
    return 0


cdef aclrtContext home_of(object stream) noexcept:
    """Return the context of a Stream; NULL for a handle, whose context is not known."""
    return (<Stream> stream).context if isinstance(stream, Stream) else NULL


cdef int device_check(Pool pool, aclrtStream raw) except -1:
    """Raise for the default stream if the current context is not one of the pool's device."""
    current_ensure(NULL)
    if raw is NULL and current_device() not in (pool.device, -1):   # -1: the device is lost
        raise ValueError(
            f"the pool is for device {pool.device}, the current device is {current_device()}")
    return 0


cdef Block *take_slow(Pool pool, Arena *arena, aclrtStream raw, size_t bytes,
                      uint16_t tag) except NULL:
    """Run a slow allocation without the GIL.  If it fails, call the hook and run it once more."""
    cdef Block *block
    cdef uint32_t attempt
    cdef uint64_t before
    cdef bint noted
    device_check(pool, raw)
    for attempt in range(2):
        before = pool.core.reports.oom.number
        noted = stack_enter(pool.core)
        with nogil:
            block = arena_alloc(arena, bytes, tag)
            if block is NULL and pool.guarded and buffers_flush(pool.core) > 0:
                block = arena_alloc(arena, bytes, tag)
        if noted:
            stack_leave()
        segments_tell(pool)
        if block is not NULL:
            return block
        report = books().oom_of(pool, before, <size_t> raw, bytes)
        if attempt or not pool.oom_tell(report):
            break
    raise books().oom_told(report, ACL_ERROR_RT_MEMORY_ALLOCATION, "acl.Pool.alloc")


def use_pool(pool):
    """Register a pool for every stream that `Stream` or `acl.rt` makes on its device from now on.

    Returns
    -------
    UsePool
        To stop, call its `close`, or use it as a context manager.
    """
    if not isinstance(pool, Pool):
        raise TypeError(f"pool must be a Pool, not {type(pool).__name__}")
    from acl.pool._scopes import UsePool

    return UsePool(pool)
