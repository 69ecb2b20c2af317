"""The slab that block descriptors come from, and the cache's flush.

Descriptors lie in one reserved stretch of host addresses, so that a pointer is checked for being
one of them by a subtraction and a compare; the stretch is opened for use piece by piece.

Runs under the arena's lock; no GIL, no driver.
"""

from acl._core cimport BINS, CACHE_UNITS

from posix.mman cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE, mmap,
    mprotect, munmap,
)

cdef enum:
    SLAB_BYTES = 1 << 30        # 2^24 descriptors
    SLAB_FIRST = 1 << 16


cdef void bins_start(Bins *bins) noexcept nogil:
    cdef uint32_t index
    for index in range(<uint32_t> (2 * BINS)):          # an enum
        bins.heads[index].next = bins.heads[index].prev = links_block(&bins.heads[index])
    for index in range(2):
        bins.holes[index].next = bins.holes[index].prev = links_block(&bins.holes[index])


cdef bint slab_open(Arena *arena) noexcept nogil:
    cdef void *base = mmap(NULL, SLAB_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                           -1, 0)
    if base == MAP_FAILED:
        return False
    arena.slab = <char *> base
    arena.slab_ready = 0
    arena.slab_used = 0
    return True


cdef void slab_close(Arena *arena) noexcept nogil:
    if arena.slab != NULL:
        munmap(arena.slab, SLAB_BYTES)
        arena.slab = NULL


cdef Block *slab_take(Arena *arena) noexcept nogil:
    cdef size_t more
    cdef Block *block
    if arena.slab_used == arena.slab_ready:
        more = arena.slab_ready if arena.slab_ready != 0 else SLAB_FIRST
        if (arena.slab_ready + more > SLAB_BYTES
                or mprotect(arena.slab + arena.slab_ready, more, PROT_READ | PROT_WRITE) != 0):
            return NULL
        arena.slab_ready += more
    block = <Block *> (arena.slab + arena.slab_used)
    arena.slab_used += sizeof(Block)
    return block


cdef size_t cache_flush(Arena *arena) noexcept nogil:
    cdef uint32_t word
    cdef uint64_t classes
    cdef size_t units, bytes = 0
    cdef Block *block
    cdef Block *after
    for word in range(<uint32_t> (CACHE_UNITS >> 6) + 1):       # an enum
        classes = arena.classes[word]
        while classes != 0:
            units = (word << 6) + bit_lowest(classes)
            classes &= classes - 1
            block = arena.cache[units]
            if block == NULL:
                continue
            arena.cache[units] = NULL
            while block != NULL:
                after = block.links.next
                bytes += block.size
                block_release(arena, block)
                block = after
    if bytes != 0:
        arena.counters.flushes += 1
    return bytes


cdef void bins_sort(Arena *arena) noexcept nogil:
    cdef uint32_t index
    cdef Block *block
    for index in range(arena.range_count):
        if arena.ranges[index] == NULL:
            continue
        block = arena.ranges[index].first
        while block.next != NULL:
            block = block.next
        while block != NULL:                    # lists grow at their heads
            if block.state == BLOCK_FREE:
                bin_remove(&arena.bins, block)
                bin_insert(&arena.bins, block)
            block = block.prev
