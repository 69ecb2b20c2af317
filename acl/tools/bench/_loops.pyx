"""The loops with which every allocator is measured.

For the loops, an allocator is four C values (`Allocator`): its state, alloc, free, and a function
that returns a block's address.  The loops call the functions through pointers, as ACL does.  Each
allocator has its own copy of the loops' machine code (loops.h), so that the processor's predictions
for one allocator do not affect another.  The cost of the loop itself is measured with empty
callbacks.

The loads: `Load.pairs` (alloc, read the address, free), `Load.replace` (free the block of a slot,
then allocate another), `Load.random` (as `Load.replace`, with new random slots and sizes in each
run), `Load.events` (a trace) and `Load.ring` (one thread allocates, another frees).  A load runs on
the calling thread, on Python threads, or on threads made by pthread_create that have no Python
thread state.  The GIL is released while it runs.  `bench` and `replay` interpret the results.
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free as c_free, malloc as c_malloc
from libc.string cimport memcpy, memset
from posix.stdlib cimport posix_memalign

import threading

from acl.bind.generated._libacl cimport aclrtContext, aclrtSetCurrentContext

__all__ = ["EVENT_BYTES", "Load", "Subject", "instructions_available", "run_foreign", "run_here",
           "run_python", "run_together", "ticks_per_ns"]


cdef extern from "tools/bench/clock.h" nogil:
    uint64_t cpu_ns()
    uint64_t wall_ns()
    uint64_t ticks_now()
    void spin_pause()
    int instructions_open()
    uint64_t instructions_read(int counter)
    void instructions_close(int counter)


cdef extern from "<pthread.h>" nogil:
    ctypedef unsigned long pthread_t
    int pthread_create(pthread_t *thread, const void *attributes,
                       void *(*run)(void *) noexcept nogil, void *argument)
    int pthread_join(pthread_t thread, void **result)


cdef extern from *:
    """
    #define counter_add(where) __atomic_add_fetch(where, 1u, __ATOMIC_ACQ_REL)
    #define counter_get(where) __atomic_load_n(where, __ATOMIC_ACQUIRE)
    """
    uint32_t counter_add(uint32_t *where) noexcept nogil
    uint32_t counter_get(uint32_t *where) noexcept nogil


EVENT_BYTES = sizeof(Event)

cdef extern from "tools/bench/loops.h" nogil:
    enum:
        LOADS_ALLOCATORS
        LOADS_SEATS

    enum LoadKind:
        LOAD_PAIRS
        LOAD_REPLACE
        LOAD_EVENTS
        LOAD_PRODUCE
        LOAD_CONSUME

    struct Draw:
        uint64_t random
        uint64_t first
        uint64_t step
        uint64_t *sizes
        uint64_t size_count
        uint64_t *held
        uint32_t *last_run
        uint32_t run
        size_t touched
        uint64_t live_peak

    struct RingBlocks "Ring":
        pass

    struct Plan:
        LoadKind kind
        size_t seat
        size_t count
        size_t pair_size
        Event *events
        size_t event_count
        void **slots
        size_t slot_count
        Draw *draw
        RingBlocks *ring
        uint64_t failures
        uintptr_t sink
        Allocator allocators[64]

    uint64_t draw_size(Draw *draw)
    void draw_note(Draw *draw, uint32_t slot, uint64_t size)
    void plan_begin(Plan *plan)
    void plan_draw(Plan *plan, size_t count)
    void plan_run(Plan *plan, size_t first, size_t count)
    void event_alloc(Plan *plan, const Event *event, uintptr_t *sink)
    void event_free(Plan *plan, const Event *event)


cdef extern from "tools/bench/latency.h" nogil:
    enum:
        BUCKETS

    struct Histogram:
        uint64_t alloc[1]
        uint64_t free[1]

    uint64_t bucket_ticks(size_t bucket)
    void plan_time(Plan *plan, Histogram *out)
    void plan_touch(Plan *plan, size_t count)


cdef struct Sample:
    uint64_t cpu            # ns of CPU time of this thread, without drawing
    uint64_t wall           # ns of the wall clock, without drawing
    uint64_t instructions   # 0: this machine cannot count them
    uint64_t began          # wall clock in ns at the start of the run
    uint64_t ended          # wall clock in ns at its end; ended - began includes drawing


cdef struct Worker:
    Plan *plan
    Sample *samples
    size_t repeats
    uint32_t *arrived       # counter of a spinning barrier: all workers start a repeat together
    uint32_t workers
    aclrtContext context    # made current on the worker's thread, if not NULL


# By the address of an allocator's alloc function: the number of its copy of the loops (its seat).
seats: dict = {}


cdef size_t seat_of(Allocator *allocator) except *:
    return seats.setdefault(<size_t>allocator.alloc, len(seats) % LOADS_SEATS)


# ---- events, with a counter watched ----

cdef list histogram_pairs(const uint64_t *counts):
    cdef size_t i
    cdef size_t size = BUCKETS
    return [(bucket_ticks(i), counts[i]) for i in range(size) if counts[i]]


cdef size_t plan_watch(Plan *plan, const uint64_t *counter, size_t first,
                       size_t count) noexcept nogil:
    """Run events and return the number of allocations during which `counter` changed."""
    cdef uintptr_t sink = 0
    cdef size_t moved = 0
    cdef uint64_t before
    cdef size_t i
    for i in range(first, first + count):
        if plan.events[i].size == 0:
            event_free(plan, &plan.events[i])
            continue
        before = counter[0]
        event_alloc(plan, &plan.events[i], &sink)
        moved += before != counter[0]
    plan.sink ^= sink
    return moved


# ---- threads ----

cdef void worker_wait(Worker *worker, size_t round_number) noexcept nogil:
    cdef uint32_t wanted = <uint32_t>(round_number + 1) * worker.workers
    counter_add(worker.arrived)
    while counter_get(worker.arrived) < wanted:
        spin_pause()


cdef size_t plan_part(Plan *plan, size_t left) noexcept nogil:
    """Return how many of the `left` pairs are timed next; random ones are drawn just before."""
    return left if plan.draw == NULL else min(left, plan.event_count)


cdef void plan_measure(Plan *plan, int counter, Sample *sample) noexcept nogil:
    """Measure one run; the caller must have drawn its first part."""
    cdef uint64_t cpu, wall, instructions
    cdef size_t left = plan.count
    cdef size_t part = plan_part(plan, left)
    sample.began = wall_ns()
    while True:
        instructions = instructions_read(counter)
        wall = wall_ns()
        cpu = cpu_ns()
        plan_run(plan, 0, part)
        sample.cpu += cpu_ns() - cpu
        sample.wall += wall_ns() - wall
        sample.instructions += instructions_read(counter) - instructions
        left -= part
        if left == 0:
            break
        part = plan_part(plan, left)
        plan_draw(plan, part)
    sample.ended = wall_ns()


cdef void *worker_run(void *argument) noexcept nogil:
    cdef Worker *worker = <Worker *>argument
    cdef Plan *plan = worker.plan
    cdef size_t i
    cdef int counter = instructions_open()
    if worker.context != NULL:
        aclrtSetCurrentContext(worker.context)
    for i in range(worker.repeats):
        plan_begin(plan)
        if plan.draw != NULL:
            plan_draw(plan, plan_part(plan, plan.count))
        worker_wait(worker, i)
        plan_measure(plan, counter, &worker.samples[i])
    instructions_close(counter)
    return NULL


cdef class Subject:
    """An allocator under test: a name and four C values.

    Parameters
    ----------
    name : str
        The allocator's name in the results.
    state, alloc, free, address : int
        The allocator's first argument and its three functions, as addresses.
    keep : object, optional
        An object that is kept alive as long as this one.
    """

    def __init__(self, str name not None, state, alloc, free, address, keep=None):
        for what, value in (("alloc", alloc), ("free", free), ("address", address)):
            if not value:
                raise ValueError(f"allocator {name!r}: the {what} function is NULL")
        self.name = name
        self.keep = keep
        self.allocator.state = <void *><size_t>state
        # The functions are given as numbers.  Their addresses are copied, because a cast is not
        # allowed.
        cdef uintptr_t[3] functions = [alloc, free, address]
        memcpy(&self.allocator.alloc, &functions[0], sizeof(uintptr_t))
        memcpy(&self.allocator.free, &functions[1], sizeof(uintptr_t))
        memcpy(&self.allocator.address, &functions[2], sizeof(uintptr_t))

    def __repr__(self):
        return f"<Subject {self.name}>"

    def take(self, size_t size):
        """Allocate `size` bytes and return the block as a number (0: no memory)."""
        cdef void *block
        with nogil:
            block = self.allocator.alloc(self.allocator.state, size)
        return <size_t>block

    def give(self, size_t block):
        """Free a block that `take` returned."""
        with nogil:
            self.allocator.free(self.allocator.state, <void *>block)

    def address_of(self, size_t block):
        """Return the device address of a block."""
        cdef void *address
        with nogil:
            address = self.allocator.address(<void *>block)
        return <size_t>address


cdef object least_size(sizes):
    """Return the smallest size, or 0 if there is none.  Only the ends of a range are compared."""
    ends = (sizes[0], sizes[-1]) if isinstance(sizes, range) and sizes else sizes
    return min(ends, default=0)


cdef class Ring:
    """The ring of blocks between a producer and its consumer."""

    cdef RingBlocks *blocks

    def __cinit__(self):
        if posix_memalign(<void **>&self.blocks, 64, sizeof(RingBlocks)) != 0:
            self.blocks = NULL
            raise MemoryError("a ring of blocks")
        memset(self.blocks, 0, sizeof(RingBlocks))

    def __dealloc__(self):
        c_free(self.blocks)


cdef class Load:
    """The allocations and frees that one thread makes, in order, with their allocators.

    A load is made by `pairs`, `replace`, `random`, `events` or `ring`.  `close()` frees every block
    that the load still holds.
    """

    cdef Plan *plan
    cdef list subjects
    cdef Ring shared                   # the ring, if this is a producer or a consumer
    cdef readonly size_t allocations   # allocations in one run

    def __cinit__(self):
        self.plan = <Plan *>calloc(1, sizeof(Plan))
        if self.plan == NULL:
            raise MemoryError("a load's plan")

    def __init__(self, subjects):
        cdef Subject subject
        self.subjects = list(subjects)
        if not 1 <= len(self.subjects) <= LOADS_ALLOCATORS:
            raise ValueError(f"a load wants 1 to {LOADS_ALLOCATORS} allocators, "
                             f"got {len(self.subjects)}")
        for i, subject in enumerate(self.subjects):
            self.plan.allocators[i] = subject.allocator
        self.plan.seat = seat_of(&self.plan.allocators[0])

    @staticmethod
    def pairs(Subject subject not None, size_t size, size_t count):
        """Return a load that `count` times allocates `size` bytes, reads the address, and frees."""
        cdef Load load = Load([subject])
        load.plan.kind = LOAD_PAIRS
        load.plan.pair_size = size
        load.plan.count = count
        load.allocations = count
        return load

    @staticmethod
    def replace(Subject subject not None, events, size_t count):
        """Return a load that `count` times frees an event's slot and allocates the event's size."""
        cdef Load load = Load([subject])
        load.plan.kind = LOAD_REPLACE
        load.take_events(events)
        load.plan.count = count
        load.allocations = count
        for i in range(load.plan.event_count):
            if load.plan.events[i].size == 0:
                raise ValueError(f"event {i}: a replacement of 0 bytes")
        return load

    @staticmethod
    def random(Subject subject not None, size_t slots, sizes, size_t count, uint64_t seed,
               size_t part=1 << 16):
        """Return a load that `count` times frees a random slot's block and allocates a random size.

        Each run draws new random slots and sizes, `part` of them at a time.  Drawing is not timed.

        Parameters
        ----------
        sizes : range or sequence of int
            The sizes to draw from, each with the same probability.
        """
        cdef Load load = Load([subject])
        if not 1 <= slots < 1 << 32 or not count or not part or least_size(sizes) < 1:
            raise ValueError("random replacements want slots, a count, and sizes of at least 1")
        load.plan.kind = LOAD_REPLACE
        load.plan.count = count
        load.plan.event_count = min(count, part)
        load.plan.slot_count = slots
        load.allocations = count
        load.plan.events = <Event *>calloc(load.plan.event_count, sizeof(Event))
        load.plan.slots = <void **>calloc(slots, sizeof(void *))
        if load.plan.events == NULL or load.plan.slots == NULL:
            raise MemoryError("a load's events and slots")
        load.take_draw(sizes, seed)
        return load

    cdef int take_draw(self, sizes, uint64_t seed) except -1:
        cdef size_t i
        cdef Draw *draw = <Draw *>calloc(1, sizeof(Draw))
        if draw == NULL:
            raise MemoryError("what a load draws from")
        self.plan.draw = draw
        draw.random = seed
        draw.size_count = len(sizes)
        draw.held = <uint64_t *>calloc(self.plan.slot_count, sizeof(uint64_t))
        draw.last_run = <uint32_t *>calloc(self.plan.slot_count, sizeof(uint32_t))
        if isinstance(sizes, range):
            draw.first, draw.step = sizes.start, sizes.step
        else:
            draw.sizes = <uint64_t *>calloc(draw.size_count, sizeof(uint64_t))
        if draw.held == NULL or draw.last_run == NULL or (
                draw.sizes == NULL and not isinstance(sizes, range)):
            raise MemoryError("what a load draws from")
        if draw.sizes != NULL:
            for i in range(draw.size_count):
                draw.sizes[i] = sizes[i]
        return 0

    @staticmethod
    def ring(Subject subject not None, sizes, size_t count):
        """Return two loads for two threads: one allocates `count` blocks, the other frees them."""
        cdef Ring shared = Ring()
        cdef Load producer = Load([subject])
        cdef Load consumer = Load([subject])
        cdef size_t i
        producer.plan.kind, consumer.plan.kind = LOAD_PRODUCE, LOAD_CONSUME
        producer.plan.event_count = len(sizes)
        producer.plan.events = <Event *>calloc(max(len(sizes), 1), sizeof(Event))
        if producer.plan.events == NULL:
            raise MemoryError("a producer's sizes")
        for i in range(producer.plan.event_count):
            producer.plan.events[i].size = sizes[i]
        if least_size(sizes) < 1:
            raise ValueError("a producer wants sizes of at least 1")
        for load in (producer, consumer):
            (<Load>load).shared = shared
            (<Load>load).plan.ring = shared.blocks
            (<Load>load).plan.count = (<Load>load).allocations = count
        return producer, consumer

    @staticmethod
    def events(subjects, events):
        """Return a load that plays events in order; an event's stream is an index of `subjects`."""
        cdef Load load = Load(subjects)
        cdef size_t i
        load.plan.kind = LOAD_EVENTS
        load.take_events(events)
        load.plan.count = load.plan.event_count
        for i in range(load.plan.event_count):
            load.allocations += load.plan.events[i].size != 0
        return load

    cdef int take_events(self, events) except -1:
        cdef const unsigned char[::1] data = memoryview(events).cast("B")
        cdef size_t i
        cdef Plan *plan = self.plan
        plan.event_count = <size_t>data.shape[0] // sizeof(Event)
        if plan.event_count == 0:
            raise ValueError("a load wants at least one event")
        plan.events = <Event *>c_malloc(plan.event_count * sizeof(Event))
        if plan.events == NULL:
            raise MemoryError("a load's events")
        memcpy(plan.events, &data[0], plan.event_count * sizeof(Event))
        for i in range(plan.event_count):
            if plan.events[i].stream >= <size_t>len(self.subjects):
                raise ValueError(f"event {i}: stream {plan.events[i].stream}, but "
                                 f"{len(self.subjects)} allocators")
            plan.slot_count = max(plan.slot_count, <size_t>plan.events[i].slot + 1)
        plan.slots = <void **>calloc(plan.slot_count, sizeof(void *))
        if plan.slots == NULL:
            raise MemoryError("a load's slots")
        return self.check_slots()

    cdef int check_slots(self) except -1:
        """Raise ValueError if two allocators use one slot, as `close` frees with only one."""
        cdef Event *events = self.plan.events
        cdef size_t i
        cdef uint32_t *owners = <uint32_t *>calloc(self.plan.slot_count, sizeof(uint32_t))
        if owners == NULL:
            raise MemoryError("the owners of a load's slots")
        try:
            for i in range(self.plan.event_count):
                if owners[events[i].slot] not in (0, events[i].stream + 1):
                    raise ValueError(f"event {i}: slot {events[i].slot} belongs to another stream")
                owners[events[i].slot] = events[i].stream + 1
        finally:
            c_free(owners)
        return 0

    def fill(self):
        """Allocate a block for each empty slot, so that the load begins with all slots in use.

        The returned number has no meaning; it keeps the compiler from dropping reads of addresses.
        """
        cdef size_t i
        cdef uintptr_t sink = 0
        if self.plan.draw != NULL:
            return self.fill_random()
        with nogil:
            for i in range(self.plan.event_count):
                if self.plan.slots[self.plan.events[i].slot] == NULL and self.plan.events[i].size:
                    event_alloc(self.plan, &self.plan.events[i], &sink)
        return <size_t>sink

    cdef object fill_random(self):
        cdef Event event
        cdef size_t i
        cdef uintptr_t sink = 0
        event.stream = 0
        with nogil:
            for i in range(self.plan.slot_count):
                if self.plan.slots[i] == NULL:
                    event.slot = <uint32_t>i
                    event.size = draw_size(self.plan.draw)
                    draw_note(self.plan.draw, event.slot, event.size)
                    event_alloc(self.plan, &event, &sink)
        return <size_t>sink

    def touch(self, size_t count=0):
        """Run `count` replacements or events (0: a whole run) untimed; write to each block's pages.

        This works only with allocators that allocate memory of this process.
        """
        if self.plan.kind != LOAD_REPLACE and self.plan.kind != LOAD_EVENTS:
            raise TypeError("only replacements and events can be written to")
        if self.plan.kind == LOAD_EVENTS and count > self.plan.event_count:
            raise ValueError(f"{count} events of {self.plan.event_count}")
        with nogil:
            plan_touch(self.plan, count or self.plan.count)

    @property
    def slots(self):
        """Number of slots; each holds a block or none."""
        return self.plan.slot_count

    @property
    def touched(self):
        """Number of slots whose block a random load replaced in its last run.

        Its value is None for other loads.
        """
        return None if self.plan.draw == NULL else self.plan.draw.touched

    @property
    def live_peak(self):
        """Most live bytes of a random load since it began or was touched; None for other loads."""
        return None if self.plan.draw == NULL else self.plan.draw.live_peak

    def step(self, size_t first, size_t count):
        """Run `count` events of an event load from event `first` on, untimed."""
        self.check_range(first, count)
        with nogil:
            plan_run(self.plan, first, count)

    def timed_step(self, size_t first, size_t count):
        """Run events as `step` does.

        Return the thread CPU time and the wall time in nanoseconds.
        """
        cdef uint64_t cpu, wall
        self.check_range(first, count)
        with nogil:
            wall = wall_ns()
            cpu = cpu_ns()
            plan_run(self.plan, first, count)
            cpu = cpu_ns() - cpu
            wall = wall_ns() - wall
        return cpu, wall

    def watch(self, size_t counter, size_t first, size_t count):
        """Run events as `step` does; return the number of allocations that changed a counter.

        `counter` is the address of a uint64.
        """
        cdef size_t moved
        self.check_range(first, count)
        with nogil:
            moved = plan_watch(self.plan, <const uint64_t *>counter, first, count)
        return moved

    cdef int check_range(self, size_t first, size_t count) except -1:
        if self.plan.kind != LOAD_EVENTS:
            raise TypeError("only a load of events runs in parts")
        if first > self.plan.event_count or count > self.plan.event_count - first:
            raise ValueError(f"events {first} to {first + count} of {self.plan.event_count}")
        return 0

    def latencies(self):
        """Run once with a clock around each call.

        Returns
        -------
        tuple of list
            Two histograms as lists of (ticks, calls), in rising order: for an allocation with the
            reading of its address, and for a free.  The clock's own cost is included.
        """
        cdef Histogram *out = <Histogram *>calloc(1, sizeof(Histogram))
        if out == NULL:
            raise MemoryError("a histogram")
        try:
            with nogil:
                plan_time(self.plan, out)
            return histogram_pairs(out.alloc), histogram_pairs(out.free)
        finally:
            c_free(out)

    @property
    def seat(self):
        """Number of the allocator's copy of the loops; if there are many, some share a copy."""
        return self.plan.seat

    @property
    def failures(self):
        """Number of allocations so far that returned NULL."""
        return self.plan.failures

    @property
    def held(self):
        """Number of slots that hold a block now."""
        cdef size_t i
        return sum(1 for i in range(self.plan.slot_count) if self.plan.slots[i] != NULL)

    def close(self):
        """Free every block that a slot still holds, with the slot's allocator."""
        cdef Event *event
        cdef size_t i
        if self.plan.slots == NULL:
            return
        if self.plan.draw != NULL:
            self.close_random()
            return
        with nogil:
            for i in range(self.plan.event_count):
                event = &self.plan.events[i]
                event_free(self.plan, event)

    cdef int close_random(self) except -1:
        cdef Event event
        cdef size_t i
        event.size = event.stream = 0
        with nogil:
            for i in range(self.plan.slot_count):
                event.slot = <uint32_t>i
                event_free(self.plan, &event)
        return 0

    def __dealloc__(self):
        if self.plan != NULL:
            if self.plan.draw != NULL:
                c_free(self.plan.draw.sizes)
                c_free(self.plan.draw.held)
                c_free(self.plan.draw.last_run)
                c_free(self.plan.draw)
            c_free(self.plan.events)
            c_free(self.plan.slots)
            c_free(self.plan)


cdef class Team:
    """The C structures for several loads that run at the same time."""

    cdef list loads
    cdef Worker *workers
    cdef Sample *samples
    cdef uint32_t arrived
    cdef size_t repeats

    def __cinit__(self, loads, size_t repeats, size_t context=0):
        cdef Load load
        cdef size_t i
        cdef size_t size = len(loads)
        self.loads = list(loads)
        self.repeats = repeats
        self.workers = <Worker *>calloc(size, sizeof(Worker))
        self.samples = <Sample *>calloc(size * repeats, sizeof(Sample))
        if self.workers == NULL or self.samples == NULL:
            raise MemoryError("a team of workers")
        for i in range(size):
            load = self.loads[i]
            self.workers[i].plan = load.plan
            self.workers[i].samples = &self.samples[i * repeats]
            self.workers[i].repeats = repeats
            self.workers[i].arrived = &self.arrived
            self.workers[i].workers = <uint32_t>size
            self.workers[i].context = <aclrtContext>context

    def run(self, size_t index):
        with nogil:
            worker_run(&self.workers[index])

    def run_foreign(self):
        cdef size_t size = len(self.loads)
        cdef size_t started = 0
        cdef size_t i
        cdef size_t _
        cdef pthread_t *threads = <pthread_t *>calloc(size, sizeof(pthread_t))
        if threads == NULL:
            raise MemoryError("a team of threads")
        with nogil:
            while started < size:
                if pthread_create(&threads[started], NULL, worker_run, &self.workers[started]) != 0:
                    break
                started += 1
            # Count the threads that failed to start as arrived, or the others would wait for ever.
            for _ in range((size - started) * self.repeats):
                counter_add(&self.arrived)
            for i in range(started):
                pthread_join(threads[i], NULL)
        c_free(threads)
        if started != size:
            raise OSError(f"only {started} of {size} threads could be started")

    def results(self):
        return [[(self.samples[i * self.repeats + j].cpu, self.samples[i * self.repeats + j].wall,
                  self.samples[i * self.repeats + j].instructions) for j in range(self.repeats)]
                for i in range(<size_t>len(self.loads))]

    def windows(self):
        """Return, for each repeat, each worker's (began, ended) in nanoseconds (wall clock)."""
        cdef size_t count = len(self.loads)
        return [[(self.samples[i * self.repeats + j].began,
                  self.samples[i * self.repeats + j].ended)
                 for i in range(count)] for j in range(self.repeats)]

    def __dealloc__(self):
        c_free(self.workers)
        c_free(self.samples)


def run_here(load, size_t repeats):
    """Run a load on this thread. Return (cpu ns, wall ns, instructions) of each repeat."""
    team = Team([load], repeats)
    team.run(0)
    return team.results()[0]


def run_together(loads, size_t repeats, bint foreign, size_t context=0):
    """Run loads at the same time, each on its own thread.

    Parameters
    ----------
    foreign : bool
        True to use threads made by pthread_create, which have no Python thread state; False to use
        Python's threads.
    context : int
        The ACL context to make current on the threads, if not 0.

    Returns
    -------
    tuple of list
        First: for each load, a list as `run_here` returns it.  Second: for each repeat, a list of
        the times at which each thread's run began and ended, in nanoseconds of the wall clock.
    """
    team = Team(loads, repeats, context)
    if foreign:
        team.run_foreign()
        return team.results(), team.windows()
    threads = [threading.Thread(target=team.run, args=(i,)) for i in range(len(loads))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return team.results(), team.windows()


def run_python(loads, size_t repeats, size_t context=0):
    """Return the samples of `run_together` on Python's threads."""
    return run_together(loads, repeats, False, context)[0]


def run_foreign(loads, size_t repeats, size_t context=0):
    """Return the samples of `run_together` on threads without a Python thread state."""
    return run_together(loads, repeats, True, context)[0]


def instructions_available():
    """Return True if this machine lets a thread count its own instructions."""
    cdef int counter = instructions_open()
    instructions_close(counter)
    return counter >= 0


def ticks_per_ns():
    """Return the ticks per nanosecond, and the fewest ticks between two consecutive readings."""
    cdef uint64_t wall, ticks, once, least = <uint64_t>-1
    cdef size_t _
    with nogil:
        for _ in range(10000):
            once = ticks_now()
            once = ticks_now() - once
            least = min(least, once)
        wall = wall_ns()
        ticks = ticks_now()
        while wall_ns() - wall < 5000000:
            pass
        ticks = ticks_now() - ticks
        wall = wall_ns() - wall
    return <double>ticks / <double>wall, least
