"""The zone of arenas and descriptors, and the flush of the cache.

All arenas lie in one reserved range of host addresses, and all slabs of descriptors in another.  So
one subtraction and one comparison show if a pointer from outside may be dereferenced, whatever its
value: each slot that was ever an arena can be read and has a lock, and each slab that was ever open
can be read.  A slab is made writable in steps, each of which doubles it.

All functions for an arena run under its lock; they use no GIL and call no driver function.
"""

from libc.stdint cimport uint32_t

from acl.core.types cimport ARENA_CLOSED, ARENA_SHIFT, BINS
from acl.core._lock cimport SpinLock, lock_start, spin_enter, spin_leave

from libc.string cimport memchr
from posix.mman cimport (
    MADV_DONTNEED, MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ,
    PROT_WRITE, madvise, mmap, mprotect,
)

cdef extern from *:
    """
    /* Under ThreadSanitizer a program can reserve only two TiB. */
    #if defined(__SANITIZE_THREAD__)
    #define ZONE_SLABS 512
    #else
    #define ZONE_SLABS 32768
    #endif
    """
    size_t ZONE_SLABS           # limit of the slabs, and so of the arenas in use at the same time

cdef enum:
    SLAB_SHIFT = 30             # a slab has 1 << SLAB_SHIFT bytes of addresses: 2^24 descriptors
    SLAB_FIRST = 1 << 16        # bytes of a new slab that are writable
    # Number of arena slots for each slab.  An open arena has one slot and one slab.  A closed arena
    # gives its slab back, but may keep its slot, so there are more slots than slabs.
    SLAB_ARENAS = 32

cdef SpinLock zone_lock         # guards the variables below and all writes to the zone
cdef size_t zone_slabs = 0      # number of slabs for which addresses are reserved
cdef size_t slabs_used = 0      # number of slabs that were ever open
cdef size_t arenas_used = 0     # number of slots that were ever arenas
# list of closed slabs: the first descriptor of each, linked by `links.next`; the `size` of the
# descriptor is the number of writable bytes of the slab
cdef Block *slabs_free = NULL
cdef Arena *arenas_free = NULL  # list of returned arenas, linked by `slab`


# --- the zone -----------------------------------------------------------------------------------

cdef bint zone_open() noexcept nogil:
    """Under the zone's lock: reserve the zone's addresses, at the first call.

    If the system refuses, try it for half as many slabs, and so on.  False if no slab is possible,
    or if `acl._core` was not imported.
    """
    global zone_slabs
    cdef size_t slabs = ZONE_SLABS
    cdef size_t arenas, bytes
    cdef void *base = MAP_FAILED
    if core_zone == NULL:
        return False                            # `acl._core` has not been imported
    while core_zone.arenas == NULL and slabs > 0:
        arenas = slabs * SLAB_ARENAS << ARENA_SHIFT
        bytes = arenas + (slabs << SLAB_SHIFT)
        base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        if base != MAP_FAILED:
            zone_slabs = slabs
            core_zone.blocks = <char *> base + arenas
            core_zone.arenas = <char *> base
        slabs //= 2
    return core_zone.arenas != NULL


cdef Arena *arena_open() noexcept nogil:
    global arenas_free, arenas_used
    cdef Arena *arena = NULL
    spin_enter(&zone_lock)
    if arenas_free != NULL:
        arena = arenas_free
        arenas_free = <Arena *> arena.slab
        arena.slab = NULL
        lock_start(&arena.lock)
    elif zone_open() and arenas_used < zone_slabs * SLAB_ARENAS:
        arena = <Arena *> (core_zone.arenas + (arenas_used << ARENA_SHIFT))
        # Make the whole slot writable: then neighbouring slots are one mapping of the kernel, which
        # limits the number of mappings.
        if mprotect(arena, <size_t> 1 << ARENA_SHIFT, PROT_READ | PROT_WRITE) == 0:
            lock_start(&arena.lock)
            arena.mode = ARENA_CLOSED
            arenas_used += 1
            core_zone.arenas_made = arenas_used
        else:
            arena = NULL
    spin_leave(&zone_lock)
    return arena


cdef void arena_return(Arena *arena) noexcept nogil:
    global arenas_free
    spin_enter(&zone_lock)
    arena.slab = <char *> arenas_free
    arenas_free = arena
    spin_leave(&zone_lock)


cdef bint slab_open(Arena *arena) noexcept nogil:
    global slabs_free, slabs_used
    cdef Block *first = NULL
    spin_enter(&zone_lock)
    if slabs_free != NULL:
        first = slabs_free
        slabs_free = first.links.next
        arena.slab_ready = first.size
        first.size = 0
        first.links.next = NULL
    elif zone_open() and slabs_used < zone_slabs:
        first = <Block *> (core_zone.blocks + (slabs_used << SLAB_SHIFT))
        if (mprotect(first, <size_t> 1 << SLAB_SHIFT, PROT_READ) == 0
                and mprotect(first, SLAB_FIRST, PROT_READ | PROT_WRITE) == 0):
            slabs_used += 1
            core_zone.blocks_open = slabs_used << SLAB_SHIFT - 6
            arena.slab_ready = SLAB_FIRST
        else:
            first = NULL
    spin_leave(&zone_lock)
    arena.slab = <char *> first
    arena.slab_used = arena.slab_blocks = 0
    return first != NULL


cdef void slab_close(Arena *arena) noexcept nogil:
    # The old descriptors read as zeros from now on.  So `on_get_addr` with a block of the closed
    # arena returns NULL, or the address of a block that uses the same descriptor later.
    global slabs_free
    cdef Block *first = <Block *> arena.slab
    if first == NULL:
        return
    arena.slab = NULL
    arena.slab_used = arena.slab_blocks = 0     # now `is_descriptor` is false for every pointer
    arena.spare = NULL
    madvise(first, arena.slab_ready, MADV_DONTNEED)
    spin_enter(&zone_lock)
    first.size = arena.slab_ready
    first.links.next = slabs_free
    slabs_free = first
    spin_leave(&zone_lock)


# --- bins and the cache -------------------------------------------------------------------------

cdef void bins_start(Bins *bins) noexcept nogil:
    cdef uint32_t index
    for index in range(<uint32_t> (2 * BINS)):
        bins.heads[index].next = bins.heads[index].prev = links_block(&bins.heads[index])
    for index in range(2):
        bins.holes[index].next = bins.holes[index].prev = links_block(&bins.holes[index])


cdef Block *slab_take(Arena *arena) noexcept nogil:
    cdef size_t more
    cdef Block *block
    if arena.slab_used == arena.slab_ready:
        more = arena.slab_ready
        if (arena.slab_ready + more > <size_t> 1 << SLAB_SHIFT
                or mprotect(arena.slab + arena.slab_ready, more, PROT_READ | PROT_WRITE) != 0):
            return NULL
        arena.slab_ready += more
    block = <Block *> (arena.slab + arena.slab_used)
    arena.slab_used += sizeof(Block)
    arena.slab_blocks += 1
    return block


cdef void size_flush(Arena *arena, size_t units, uint32_t *left) noexcept nogil:
    """Move up to `left` blocks of one size from the cache to the bins.

    Subtract their number from `left`.
    """
    cdef Block *block = arena.cache[units]
    while block != NULL and left[0] > 0:
        arena.cache[units] = block.links.next
        block_release(arena, block)
        block = arena.cache[units]
        left[0] -= 1
    arena.cached[units] = block != NULL


cdef uint32_t cache_flush_some(Arena *arena, uint32_t most) noexcept nogil:
    cdef uint32_t left = most
    cdef char *end = arena.cached + sizeof(arena.cached)
    cdef char *size = <char *> memchr(arena.cached, 1, sizeof(arena.cached))
    while size != NULL and left > 0:
        size_flush(arena, size - arena.cached, &left)
        size = <char *> memchr(size, 1, end - size)
    arena.counters.flushes += 1
    return most - left


cdef uint32_t cache_flush(Arena *arena) noexcept nogil:
    return cache_flush_some(arena, ~<uint32_t> 0)


cdef void bins_sort(Arena *arena) noexcept nogil:
    cdef uint32_t index
    cdef Block *block
    for index in range(arena.space.range_count):
        if arena.space.ranges[index] == NULL:
            continue
        block = arena.space.ranges[index].first
        while block.next != NULL:
            block = block.next
        while block != NULL:  # from the highest on, as `bin_insert` inserts at the head
            if block.state == BLOCK_FREE:
                bin_remove(&arena.bins, block)
                bin_insert(&arena.bins, block)
            block = block.prev
