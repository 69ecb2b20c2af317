"""Other allocators' policies as host-side bookkeeping, to be replayed beside the pool.

No memory is behind them: an "address" is a number, and a driver call is only counted, in the
`Ledger` that the pools of a replay share.  A policy decides as its original does where blocks are
placed, what is requested from the driver, and what is returned when the ledger's limit is reached
(every segment that is wholly free, after a synchronisation of the stream).  The originals' speed
cannot be measured with it.  One pool serves one stream and one thread.

exact   free list per size rounded to 512 B          pow2    the same with power-of-two classes
torch   2 MiB / 20 MiB / exact segments, best fit    ge      64 KiB pages, exact, delayed split
arena   one range that grows in 2 MiB pages          buddy   binary buddies in one growing range

Blocks are descriptors from slabs. Free blocks of the coalescing policies are in an array sorted by
size and address, which is searched by bisection: with a few thousand blocks that is fast enough.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free as c_free, realloc
from libc.string cimport memmove, memset

from acl.tools.bench._loops cimport Subject

__all__ = ["CALLS", "POLICIES", "Ledger", "Policy"]

POLICIES = ("exact", "pow2", "torch", "ge", "arena", "buddy")
CALLS = ("aclrtMalloc", "aclrtFree", "aclrtMallocPhysical", "aclrtMapMem",
         "aclrtUnmapMem", "aclrtFreePhysical", "aclrtSynchronizeStream")


cdef enum:
    KIB = 1024
    MIB = 1024 * 1024
    PAGE = 2 * 1024 * 1024
    GRAIN = 512
    GE_PAGE = 64 * 1024
    ORDERS = 64
    CALL_COUNT = 7
    SLAB_BLOCKS = 1024


cdef enum Call:
    CALL_MALLOC
    CALL_FREE
    CALL_PHYSICAL
    CALL_MAP
    CALL_UNMAP
    CALL_FREE_PHYSICAL
    CALL_SYNC


cdef enum Kind:
    KIND_EXACT
    KIND_POW2
    KIND_TORCH
    KIND_GE
    KIND_ARENA
    KIND_BUDDY


cdef enum State:
    STATE_LIVE
    STATE_FREE
    STATE_HOLE      # a part of a range that is not mapped any more


cdef struct Block:
    uint64_t address
    uint64_t size
    Block *prev         # lower neighbour in the segment; buddy: previous block in `Pool.orders`
    Block *next         # upper neighbour in the segment; buddy: next block in `Pool.orders`
    Block *below        # next block in a free list, or in `Pool.cold`, or in `Pool.spare`
    uint64_t refused    # ge: bytes of requests that this whole segment refused
    uint32_t index      # the number of its `Index` in the pool; buddy: its order
    State state


cdef struct Index:
    Block **blocks      # free blocks in rising order of size, then of address
    size_t count
    size_t room


cdef struct Slab:
    Slab *below
    Block blocks[SLAB_BLOCKS]


cdef struct SizeClass:
    uint64_t size
    Block *first


cdef struct Books:
    uint64_t limit      # bytes; 0: no limit
    uint64_t reserved   # bytes taken from the driver and not given back
    uint64_t peak       # largest value of `reserved`
    uint64_t total      # number of driver calls of all kinds
    uint64_t growths    # how often memory was requested from the driver
    uint64_t calls[CALL_COUNT]
    uint64_t bytes[CALL_COUNT]


cdef struct Pool:
    Books *books
    Kind kind
    uint64_t end            # the lowest address that was never used
    Index indexes[2]        # torch: small and large blocks; ge, arena: only the first is used
    SizeClass *classes      # exact, pow2: in rising order of size
    size_t class_count
    size_t class_room
    Block *last             # arena: the block with the highest address
    Block *orders[ORDERS]   # buddy: free and mapped blocks, by order
    Block *cold[ORDERS]     # buddy: free blocks that are not mapped, by order
    Slab *slabs             # all descriptors; they are freed with the pool
    Block *spare            # descriptors that describe no block, linked by `below`
    Pool *others            # the next pool in the ring of those that share the ledger


# ---- accounting ----

cdef void books_count(Books *books, Call call, uint64_t times, uint64_t size) noexcept nogil:
    books.calls[<int>call] += times
    books.bytes[<int>call] += size
    books.total += times


cdef bint pool_grow(Pool *pool, uint64_t size) noexcept nogil:
    """Take `size` bytes from the driver.

    If the limit forbids it, pools of the ledger first give free memory back, one after another;
    False if that is not enough.
    """
    cdef Books *books = pool.books
    cdef Pool *other
    if books.limit and books.reserved + size > books.limit:
        pool_recycle(pool)
        other = pool.others
        while other != pool and books.reserved + size > books.limit:
            pool_recycle(other)
            other = other.others
        if books.reserved + size > books.limit:
            return False
    if pool.kind == KIND_ARENA:
        books_count(books, CALL_PHYSICAL, size // PAGE, size)
        books_count(books, CALL_MAP, size // PAGE, size)
    else:
        books_count(books, CALL_MALLOC, 1, size)
    books.growths += 1
    books.reserved += size
    books.peak = max(books.peak, books.reserved)
    return True


cdef void pool_shrink(Pool *pool, uint64_t size) noexcept nogil:
    cdef Books *books = pool.books
    if pool.kind == KIND_ARENA:
        books_count(books, CALL_UNMAP, size // PAGE, size)
        books_count(books, CALL_FREE_PHYSICAL, size // PAGE, size)
    else:
        books_count(books, CALL_FREE, 1, size)
    books.reserved -= size


cdef void pool_recycle(Pool *pool) noexcept nogil:
    """Give wholly free segments or pages back to the driver, after one wait for the stream."""
    books_count(pool.books, CALL_SYNC, 1, 0)
    if pool.kind == KIND_EXACT or pool.kind == KIND_POW2:
        classes_recycle(pool)
    elif pool.kind == KIND_ARENA:
        arena_recycle(pool)
    elif pool.kind == KIND_BUDDY:
        buddy_recycle(pool)
    else:
        segments_recycle(pool)


# ---- blocks and the sorted index ----

cdef bint slab_add(Pool *pool) noexcept nogil:
    cdef Slab *slab = <Slab *>calloc(1, sizeof(Slab))
    cdef size_t i
    cdef size_t size = SLAB_BLOCKS
    if slab == NULL:
        return False
    slab.below = pool.slabs
    pool.slabs = slab
    for i in range(size):
        block_drop(pool, &slab.blocks[i])
    return True


cdef Block *block_new(Pool *pool, uint64_t address, uint64_t size, uint32_t index,
                      State state) noexcept nogil:
    cdef Block *block
    if pool.spare == NULL and not slab_add(pool):
        return NULL
    block = pool.spare
    pool.spare = block.below
    memset(block, 0, sizeof(Block))
    block.address = address
    block.size = size
    block.index = index
    block.state = state
    return block


cdef inline void block_drop(Pool *pool, Block *block) noexcept nogil:
    block.below = pool.spare
    pool.spare = block


cdef size_t index_find(const Index *index, uint64_t size, uint64_t address) noexcept nogil:
    """Return the place of the first block that is not below (size, address)."""
    cdef size_t low = 0
    cdef size_t high = index.count
    cdef size_t middle
    cdef Block *block
    while low < high:
        middle = (low + high) // 2
        block = index.blocks[middle]
        if block.size < size or (block.size == size and block.address < address):
            low = middle + 1
        else:
            high = middle
    return low


cdef void index_insert(Pool *pool, Block *block) noexcept nogil:
    cdef Index *index = &pool.indexes[block.index]
    cdef size_t place = index_find(index, block.size, block.address)
    cdef Block **grown
    if index.count == index.room:
        grown = <Block **>realloc(index.blocks, (index.room + 1024) * sizeof(Block *))
        if grown == NULL:
            return  # no host memory: the policy loses the block and takes more; nothing breaks
        index.blocks = grown
        index.room += 1024
    memmove(index.blocks + place + 1, index.blocks + place,
            (index.count - place) * sizeof(Block *))
    index.blocks[place] = block
    index.count += 1


cdef void index_remove(Pool *pool, Block *block) noexcept nogil:
    cdef Index *index = &pool.indexes[block.index]
    cdef size_t place = index_find(index, block.size, block.address)
    if place < index.count and index.blocks[place] == block:
        index.count -= 1
        memmove(index.blocks + place, index.blocks + place + 1,
                (index.count - place) * sizeof(Block *))


cdef Block *block_split(Pool *pool, Block *block, uint64_t size) noexcept nogil:
    # [ block ........ ][ next ]  =>  [ block ][ rest, free ][ next ]
    cdef Block *rest = block_new(pool, block.address + size, block.size - size, block.index,
                                 STATE_FREE)
    if rest == NULL:
        return NULL
    rest.prev = block
    rest.next = block.next
    if rest.next != NULL:
        rest.next.prev = rest
    block.next = rest
    block.size = size
    if pool.last == block:
        pool.last = rest
    index_insert(pool, rest)
    return rest


cdef void block_absorb(Pool *pool, Block *block) noexcept nogil:
    # [ block ][ next, in no index ]  =>  [ block ......... ]
    cdef Block *gone = block.next
    block.size += gone.size
    block.next = gone.next
    if block.next != NULL:
        block.next.prev = block
    if pool.last == gone:
        pool.last = block
    block_drop(pool, gone)


cdef void block_release(Pool *pool, Block *block) noexcept nogil:
    """Free a block of a segment and join it with free neighbours."""
    block.state = STATE_FREE
    block.refused = 0
    if block.next != NULL and block.next.state == STATE_FREE:
        index_remove(pool, block.next)
        block_absorb(pool, block)
    if block.prev != NULL and block.prev.state == STATE_FREE:
        block = block.prev
        index_remove(pool, block)
        block_absorb(pool, block)
    index_insert(pool, block)


# ---- exact and pow2: a free list per size class ----

cdef inline uint64_t round_up(uint64_t size, uint64_t grain) noexcept nogil:
    return (size + grain - 1) // grain * grain


cdef inline uint64_t round_pow2(uint64_t size) noexcept nogil:
    cdef uint64_t power = GRAIN
    while power < size:
        power <<= 1
    return power


cdef SizeClass *class_find(Pool *pool, uint64_t size) noexcept nogil:
    cdef size_t low = 0
    cdef size_t high = pool.class_count
    cdef size_t middle
    cdef SizeClass *grown
    while low < high:
        middle = (low + high) // 2
        if pool.classes[middle].size < size:
            low = middle + 1
        else:
            high = middle
    if low < pool.class_count and pool.classes[low].size == size:
        return &pool.classes[low]
    if pool.class_count == pool.class_room:
        grown = <SizeClass *>realloc(pool.classes, (pool.class_room + 1024) * sizeof(SizeClass))
        if grown == NULL:
            return NULL
        pool.classes = grown
        pool.class_room += 1024
    memmove(pool.classes + low + 1, pool.classes + low,
            (pool.class_count - low) * sizeof(SizeClass))
    pool.class_count += 1
    pool.classes[low].size = size
    pool.classes[low].first = NULL
    return &pool.classes[low]


cdef Block *classes_take(Pool *pool, uint64_t size) noexcept nogil:
    cdef SizeClass *size_class = class_find(pool, size)
    cdef Block *block
    if size_class == NULL:
        return NULL
    block = size_class.first
    if block != NULL:
        size_class.first = block.below
        return block
    if not pool_grow(pool, size):
        return NULL
    pool.end += size
    return block_new(pool, pool.end - size, size, 0, STATE_LIVE)


cdef void classes_give(Pool *pool, Block *block) noexcept nogil:
    cdef SizeClass *size_class = class_find(pool, block.size)
    if size_class != NULL:
        block.below = size_class.first
        size_class.first = block


cdef void classes_recycle(Pool *pool) noexcept nogil:
    cdef Block *block
    cdef size_t i
    for i in range(pool.class_count):
        while pool.classes[i].first != NULL:
            block = pool.classes[i].first
            pool.classes[i].first = block.below
            pool_shrink(pool, block.size)
            block_drop(pool, block)


# ---- torch and ge: segments, best fit, coalescing ----

cdef uint64_t segment_size(const Pool *pool, uint64_t size) noexcept nogil:
    if pool.kind == KIND_GE:
        return size
    if size <= MIB:
        return PAGE
    return 20 * MIB if size < 10 * MIB else round_up(size, PAGE)


cdef bint may_split(const Pool *pool, const Block *block, uint64_t size) noexcept nogil:
    cdef uint64_t rest = block.size - size
    if pool.kind != KIND_TORCH:
        return rest > 0
    return rest >= GRAIN if size <= MIB else rest > MIB


cdef bint ge_refuses(const Pool *pool, Block *block, uint64_t size) noexcept nogil:
    """True if a wholly free segment refuses a smaller request, as in GE.

    It refuses until the refused requests together exceed 1 % of its bytes.
    """
    if pool.kind != KIND_GE or block.prev != NULL or block.next != NULL or block.size == size:
        return False
    block.refused += size
    return block.refused <= block.size // 100


cdef Block *best_fit(Pool *pool, uint64_t size, uint32_t which) noexcept nogil:
    cdef Index *index = &pool.indexes[which]
    cdef size_t place = index_find(index, size, 0)
    if place == index.count or ge_refuses(pool, index.blocks[place], size):
        return NULL
    return index.blocks[place]


cdef Block *segments_take(Pool *pool, uint64_t size) noexcept nogil:
    cdef uint32_t which = pool.kind == KIND_TORCH and size > MIB
    cdef Block *block = best_fit(pool, size, which)
    cdef uint64_t room
    if block != NULL:
        index_remove(pool, block)
    else:
        room = segment_size(pool, size)
        if not pool_grow(pool, room):
            return NULL
        block = block_new(pool, pool.end, room, which, STATE_FREE)
        pool.end += room
    if block == NULL:
        return NULL
    block.state = STATE_LIVE
    if may_split(pool, block, size):
        block_split(pool, block, size)
    return block


cdef void segments_recycle(Pool *pool) noexcept nogil:
    cdef Index *index
    cdef Block *block
    cdef size_t which, i, kept
    for which in range(2):
        index = &pool.indexes[which]
        kept = 0
        for i in range(index.count):
            block = index.blocks[i]
            if block.prev == NULL and block.next == NULL:
                pool_shrink(pool, block.size)
                block_drop(pool, block)
            else:
                index.blocks[kept] = block
                kept += 1
        index.count = kept


# ---- arena: one range, mapped page by page at its end ----

cdef Block *arena_extend(Pool *pool, uint64_t size) noexcept nogil:
    cdef Block *last = pool.last
    cdef uint64_t have = last.size if last != NULL and last.state == STATE_FREE else 0
    cdef uint64_t wanted = round_up(size - have, PAGE)
    cdef Block *block
    if not pool_grow(pool, wanted):
        return NULL
    # `pool_grow` may have recycled, and so cut the last block.
    last = pool.last
    block = block_new(pool, pool.end, wanted, 0, STATE_LIVE)
    if block == NULL:
        return NULL
    pool.end += wanted
    block.prev = last
    if last != NULL:
        last.next = block
    pool.last = block
    block_release(pool, block)
    return best_fit(pool, size, 0)


cdef Block *arena_take(Pool *pool, uint64_t size) noexcept nogil:
    cdef Block *block = best_fit(pool, size, 0)
    cdef int _
    for _ in range(2):
        # Try twice: a recycle in the first try may have taken the free tail on which that try
        # relied.
        if block == NULL:
            block = arena_extend(pool, size)
    if block == NULL:
        return NULL
    index_remove(pool, block)
    block.state = STATE_LIVE
    if block.size > size:
        block_split(pool, block, size)
    return block


cdef void arena_cut(Pool *pool, Block *block) noexcept nogil:
    # [ free .......... ]  =>  [ free ][ hole: whole pages ][ free ]
    cdef uint64_t first = round_up(block.address, PAGE)
    cdef uint64_t end = (block.address + block.size) // PAGE * PAGE
    if end <= first:
        return
    index_remove(pool, block)
    if block.address + block.size > end:
        block_split(pool, block, end - block.address)
    if block.address < first:
        block_split(pool, block, first - block.address)
        index_insert(pool, block)
        block = block.next
        index_remove(pool, block)
    block.state = STATE_HOLE
    pool_shrink(pool, block.size)


cdef void arena_recycle(Pool *pool) noexcept nogil:
    cdef Block *block = pool.last
    cdef Block *before
    while block != NULL:
        before = block.prev
        if block.state == STATE_FREE:
            arena_cut(pool, block)
        block = before


# ---- buddy: powers of two in one growing range ----

cdef inline uint32_t order_of(uint64_t size) noexcept nogil:
    cdef uint32_t order = 9
    while (<uint64_t>1 << order) < size:
        order += 1
    return order


cdef void buddy_push(Pool *pool, Block *block) noexcept nogil:
    # [ before ] <-> [ after ]  =>  [ before ] <-> [ block ] <-> [ after ], rising by address
    cdef Block *before = NULL
    cdef Block *after = pool.orders[block.index]
    while after != NULL and after.address < block.address:
        before = after
        after = after.next
    block.prev = before
    block.next = after
    if after != NULL:
        after.prev = block
    if before != NULL:
        before.next = block
    else:
        pool.orders[block.index] = block
    block.state = STATE_FREE


cdef void buddy_unlink(Pool *pool, Block *block) noexcept nogil:
    if block.prev != NULL:
        block.prev.next = block.next
    else:
        pool.orders[block.index] = block.next
    if block.next != NULL:
        block.next.prev = block.prev


cdef Block *buddy_find(const Pool *pool, uint64_t address, uint32_t order) noexcept nogil:
    cdef Block *block = pool.orders[order]
    while block != NULL and block.address != address:
        block = block.next
    return block


cdef void buddy_give(Pool *pool, Block *block) noexcept nogil:
    cdef Block *buddy
    while block.index < ORDERS - 1:
        buddy = buddy_find(pool, block.address ^ (<uint64_t>1 << block.index), block.index)
        if buddy == NULL:
            break
        buddy_unlink(pool, buddy)
        block.address = min(block.address, buddy.address)
        block.index += 1
        block.size = <uint64_t>1 << block.index
        block_drop(pool, buddy)
    buddy_push(pool, block)


cdef void buddy_pad(Pool *pool, uint64_t upto) noexcept nogil:
    """Add free buddies to the range, from its end up to an aligned address."""
    cdef uint64_t size
    cdef Block *block
    while pool.end < upto:
        size = pool.end & (~pool.end + 1)
        block = block_new(pool, pool.end, size, order_of(size), STATE_FREE)
        if block == NULL:
            return
        pool.end += size
        buddy_give(pool, block)


cdef Block *buddy_grow(Pool *pool, uint32_t order) noexcept nogil:
    cdef uint64_t size = <uint64_t>1 << order
    cdef uint64_t start = round_up(pool.end, size)
    cdef Block *block = pool.cold[order]
    if block != NULL:
        if not pool_grow(pool, size):
            return NULL
        block = pool.cold[order]
        pool.cold[order] = block.below
        return block
    if not pool_grow(pool, start + size - pool.end):
        return NULL
    buddy_pad(pool, start)
    pool.end = start + size
    return block_new(pool, start, size, order, STATE_LIVE)


cdef Block *buddy_split(Pool *pool, Block *block, uint32_t order) noexcept nogil:
    cdef Block *half
    while block.index > order:
        block.index -= 1
        block.size >>= 1
        half = block_new(pool, block.address + block.size, block.size, block.index, STATE_FREE)
        if half != NULL:
            buddy_push(pool, half)
    return block


cdef Block *buddy_take(Pool *pool, uint64_t size) noexcept nogil:
    cdef uint32_t order = order_of(size)
    cdef uint32_t found = order
    cdef Block *block
    if order >= ORDERS:
        return NULL
    while found < ORDERS and pool.orders[found] == NULL:
        found += 1
    if found < ORDERS:
        block = pool.orders[found]
        buddy_unlink(pool, block)
    else:
        block = buddy_grow(pool, max(order, order_of(PAGE)))
    if block == NULL:
        return NULL
    buddy_split(pool, block, order)
    block.state = STATE_LIVE
    return block


cdef void buddy_recycle(Pool *pool) noexcept nogil:
    cdef Block *block
    cdef uint32_t order
    cdef uint32_t end = ORDERS
    for order in range(order_of(PAGE), end):
        while pool.orders[order] != NULL:
            block = pool.orders[order]
            buddy_unlink(pool, block)
            block.below = pool.cold[order]
            pool.cold[order] = block
            pool_shrink(pool, block.size)


# ---- the four values that the loops call ----

cdef void *on_alloc(void *state, size_t size) noexcept nogil:
    cdef Pool *pool = <Pool *>state
    if pool.kind == KIND_EXACT:
        return classes_take(pool, round_up(size, GRAIN))
    if pool.kind == KIND_POW2:
        return classes_take(pool, round_pow2(size))
    if pool.kind == KIND_BUDDY:
        return buddy_take(pool, size)
    if pool.kind == KIND_ARENA:
        return arena_take(pool, round_up(size, GRAIN))
    return segments_take(pool, round_up(size, GE_PAGE if pool.kind == KIND_GE else GRAIN))


cdef void on_free(void *state, void *block) noexcept nogil:
    cdef Pool *pool = <Pool *>state
    if pool.kind == KIND_EXACT or pool.kind == KIND_POW2:
        classes_give(pool, <Block *>block)
    elif pool.kind == KIND_BUDDY:
        buddy_give(pool, <Block *>block)
    else:
        block_release(pool, <Block *>block)


cdef void *on_address(void *block) noexcept nogil:
    # Addresses begin at PAGE, so that none is NULL.
    return <void *><uintptr_t>((<Block *>block).address + PAGE)


# ---- Python face ----

cdef class Ledger:
    """The driver calls and bytes of all pools of one replay.

    Parameters
    ----------
    limit : int
        Most bytes that may be reserved at a time; 0: no limit.
    """

    cdef Books books
    cdef list policies

    def __init__(self, limit=0):
        if limit < 0:
            raise ValueError(f"limit: expected bytes >= 0, got {limit}")
        self.books.limit = limit
        self.policies = []

    @property
    def reserved(self):
        """Bytes that were taken from the driver and not given back."""
        return self.books.reserved

    @property
    def reserved_peak(self):
        """Most bytes that were reserved at any time."""
        return self.books.peak

    @property
    def growths(self):
        """How often memory was requested from the driver, regardless of the number of calls."""
        return self.books.growths

    def calls(self):
        """Return the driver calls by name: (count, bytes)."""
        return {name: (self.books.calls[i], self.books.bytes[i]) for i, name in enumerate(CALLS)}

    @property
    def counter(self):
        """Address of the uint64 that counts all driver calls, for `Load.watch`."""
        return <size_t>&self.books.total


cdef class Policy:
    """One pool of a policy, for one stream.

    Parameters
    ----------
    name : str
        One of `POLICIES`.
    ledger : Ledger
        The ledger that counts its driver calls; pools may share it.
    """

    cdef Pool pool
    cdef readonly Ledger ledger

    def __init__(self, str name not None, Ledger ledger not None):
        if name not in POLICIES:
            raise ValueError(f"policy {name!r}: expected one of {', '.join(POLICIES)}")
        cdef Policy other = ledger.policies[-1] if ledger.policies else self
        self.pool.kind = <Kind><int>POLICIES.index(name)
        self.pool.books = &ledger.books
        # [ other ] -> [ first ]  =>  [ other ] -> [ self ] -> [ first ]
        self.pool.others = other.pool.others if other is not self else &self.pool
        other.pool.others = &self.pool
        ledger.policies.append(self)
        self.ledger = ledger

    def __dealloc__(self):
        cdef Slab *slab
        while self.pool.slabs != NULL:
            slab = self.pool.slabs
            self.pool.slabs = slab.below
            c_free(slab)
        c_free(self.pool.classes)
        c_free(self.pool.indexes[0].blocks)
        c_free(self.pool.indexes[1].blocks)

    def subject(self):
        """Return the pool as an allocator for the benchmarks' loops."""
        return Subject(POLICIES[<int>self.pool.kind], <size_t>&self.pool, <size_t><void *>on_alloc,
                       <size_t><void *>on_free, <size_t><void *>on_address, self)
