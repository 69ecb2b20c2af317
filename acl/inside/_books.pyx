"""Sums over a pool's blocks: bytes by stream and tag, for `stats`, ledger and metrics.

`walk` counts every block of an arena under its lock, in the order of the descriptors.  `glance`
reads the sums that allocations keep.  It takes no arena's lock, so it delays no thread.  Each
number is right by itself, but the numbers may be from different moments.  Nothing here changes a
pool, except that `waits` completes pending frees.
"""

from libc.stdint cimport int32_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free as c_free, malloc
from libc.string cimport memcpy, memset

import weakref
from time import monotonic

from acl.core._arena cimport (
    arena_find, pools_orphaned, pools_release,
)
from acl.core._bins cimport queue_after
from acl.core.types cimport (
    Arena, ArenaStats, Block, BLOCK_ASLEEP, BLOCK_CACHED, BLOCK_FREE, BLOCK_HOLE, BLOCK_LIVE,
    BLOCK_MOVING, BLOCK_VOID, BLOCK_WAITING, CALLS, Counters, OomHold as CoreHold,
    OomReport as CoreReport, OOMS, Peak, Pool as CorePool, REFUSALS, ROLE_FRAMEWORK,
    ROLE_STREAM, RUNGS, Source, TAGS, Use,
)
from acl.bind.generated._libacl cimport (
    ACL_DDR_MEM, ACL_HBM_MEM, ACL_SUCCESS, aclError, aclrtGetMemInfo, aclrtGetMemUsageInfo,
    aclrtGetPhyDevIdByUserDevId, aclrtMemUsageInfo, aclrtStream, libacl_has,
)
from acl.core._lock cimport count_read, lock_drop, lock_take, spin_enter, spin_leave, stale_read
from acl.core._order cimport waiting_poll
from acl.pool._pool cimport Pool
from acl.pool._registry cimport handle_of
from acl.core._tally cimport arena_copy, arena_hits, arena_stats, peak_read

from acl.runtime._device cimport fork_count
from acl.runtime._device import Device
from acl.runtime._names import ENDED, stream_name
from acl.bind._error import CLASSES, DeviceLostError, OutOfMemoryError, error_for
from acl.bind._log import error as error_log, heard, info as info_log, warning as warning_log
from acl.inside._oom import OomHold, OomReport
from acl.pool._pool import open_pools
from acl.inside._snapshot import RUNG_WORDS, BlockInfo, BudgetStats, PoolStats, StreamStats
from acl.inside._snapshot import readable

__all__ = [
    "blocks", "card", "components", "device_bytes", "glance", "last_oom", "oom_of", "oom_told",
    "ooms", "orphans", "refusals_tell", "stats", "tag_totals", "waits", "walk",
]

KINDS = ("stream", "user", "capture", "framework")
STATES = ("unused", "live", "cached", "free", "hole", "moving", "waiting", "void")
CALL_NAMES = (
    "aclrtReserveMemAddress", "aclrtReleaseMemAddress", "aclrtMallocPhysical", "aclrtFreePhysical",
    "aclrtMapMem", "aclrtUnmapMem", "aclrtMalloc", "aclrtFree", "aclrtSynchronizeStream",
    "aclrtStreamQuery", "aclrtGetMemInfo", "aclmdlRICaptureGetInfo", "aclrtEvent",
)

# The names of the Stop bits.
STOPS = ("limit", "headroom", "driver", "busy", "ranges", "budget", "device", "capture")
if len(RUNG_WORDS) != <int> RUNGS:
    raise ImportError(f"RUNG_WORDS has {len(RUNG_WORDS)} entries, the core {RUNGS}")
REFUSERS = ("limit", "headroom", "driver")     # the names of the Refusals
REPORTS_APART = 10.0            # least seconds between logged reports of one pool and tag
REPORTS_MOST = 256              # most entries of `reports_logged`
reports_logged = {}  # (pool, tag) -> time and number of the last report in the log, count since
others_told = weakref.WeakKeyDictionary()  # pool -> its last report that names other processes
refusals_told = weakref.WeakKeyDictionary()  # pool -> by Refusal: time and count when last logged

cdef struct Sums:               # sums over an arena's blocks, in bytes unless said otherwise
    size_t[TAGS] live           # bytes of live blocks that are not asleep, by tag
    size_t[TAGS] requested      # requested bytes of live blocks, by tag
    uint64_t[TAGS] blocks       # number of live blocks, by tag
    size_t[TAGS] sleeping       # requested bytes of blocks that are asleep, by tag
    size_t awake                # the sum of `live`
    size_t cached               # bytes of cached blocks
    size_t waiting              # bytes of pending frees
    size_t largest_free         # bytes of the largest free block
    size_t unmapped             # bytes of addresses without memory
    size_t asleep  # bytes asleep or free asleep; after `asleep_sum` those that have memory
    size_t others               # bytes of free and moving blocks
    size_t reserved             # bytes of memory of the arena


# ---- counting -----------------------------------------------------------------------------------

cdef void block_sum(Block *block, Sums *sums) noexcept nogil:
    cdef uint32_t tag
    if block.state == BLOCK_VOID or (
            block.state == BLOCK_LIVE and block.flags & BLOCK_ASLEEP):
        sums.asleep += block.size
        if block.state == BLOCK_LIVE:
            sums.sleeping[block.tag % TAGS] += block.requested
    elif block.state == BLOCK_LIVE:
        sums.awake += block.size
        tag = block.tag % TAGS
        sums.live[tag] += block.size
        sums.requested[tag] += block.requested
        sums.blocks[tag] += 1
    elif block.state == BLOCK_CACHED:
        sums.cached += block.size
    elif block.state == BLOCK_WAITING:
        sums.waiting += block.size
    elif block.state == BLOCK_HOLE:
        sums.unmapped += block.size
    elif block.state in (BLOCK_FREE, BLOCK_MOVING):
        sums.others += block.size
        if block.state == BLOCK_FREE and block.size > sums.largest_free:
            sums.largest_free = block.size


cdef void arena_sum(Arena *arena, Sums *sums) noexcept nogil:
    cdef size_t offset = 0
    memset(sums, 0, sizeof(Sums))
    lock_take(&arena.lock)
    while offset < arena.slab_used:
        block_sum(<Block *> (arena.slab + offset), sums)
        offset += sizeof(Block)
    sums.reserved = arena.pages * arena.pool.options.granule
    lock_drop(&arena.lock)
    asleep_sum(sums)


cdef void asleep_sum(Sums *sums) noexcept nogil:
    """Divide the bytes of sleeping blocks into those with memory (`asleep`) and `unmapped` ones."""
    cdef size_t others = sums.awake + sums.cached + sums.waiting + sums.others
    cdef size_t backed = 0
    if sums.asleep > 0 and sums.reserved > others:
        backed = min(sums.reserved - others, sums.asleep)
    sums.unmapped += sums.asleep - backed
    sums.asleep = backed


cdef object arena_name(Arena *arena):
    if count_read(&arena.ending.by_device):
        return ENDED
    return stream_name(<size_t> arena.stream)


cdef object name_in(CorePool *core, aclrtStream stream):
    """Return the name of a stream of a pool; "ended" if the pool knows that it was destroyed."""
    cdef uint32_t i
    cdef bint ended = False
    for i in range(count_read(&core.arena_count)):
        if core.arenas[i].stream == stream:
            if not count_read(&core.arenas[i].ending.by_device):
                return stream_name(<size_t> stream)
            ended = True
    return ENDED if ended else stream_name(<size_t> stream)


cdef object arena_lines(Arena *arena):
    """Return the sums of an arena as a tuple.

    It has the stream, the kind, the default tag, then in bytes: reserved, cached, waiting, largest
    free, unmapped and asleep; a list of (tag, live, requested, blocks, sleeping); and the stream's
    name.
    """
    cdef Sums sums
    cdef uint32_t tag
    with nogil:
        arena_sum(arena, &sums)
    tags = [(tag, sums.live[tag], sums.requested[tag], sums.blocks[tag], sums.sleeping[tag])
            for tag in range(<uint32_t> TAGS) if sums.blocks[tag] or sums.sleeping[tag]]
    return (<size_t> arena.stream, KINDS[arena.role], arena.default_tag, sums.reserved, sums.cached,
            sums.waiting, sums.largest_free, sums.unmapped, sums.asleep, tags,
            arena_name(arena))


cdef object core_lines(CorePool *core):
    """Return a tuple: limit, headroom, spare and reserved bytes, `arena_lines` of all arenas."""
    cdef uint32_t i
    cdef size_t reserved, spare
    arenas = [arena_lines(core.arenas[i]) for i in range(count_read(&core.arena_count))]
    spin_enter(&core.source.lock)
    reserved = core.source.reserved
    spare = core.source.spare_bytes
    spin_leave(&core.source.lock)
    return core.options.limit, core.options.headroom, spare, reserved, arenas


def walk(Pool pool not None):
    """Return the sums over a pool's blocks: `core_lines`, and the names of the tags at the end."""
    if pool.core is NULL:
        return None
    return (*core_lines(pool.core), tuple(pool.tag_names))


def orphans(int device):
    """Return the sums of a device's pools without a Python object; their tags have no names."""
    cdef CorePool *found[256]
    cdef uint32_t i
    cdef uint32_t count = min(pools_orphaned(device, found, 256), <uint32_t> 256)
    try:
        return [(*core_lines(found[i]), ()) for i in range(count)]
    finally:
        pools_release()


def glance(Pool pool not None):
    """Return the pool's counters as a dict, without an arena's lock; ``streams``: by stream.

    None if the pool was destroyed, or was made by the process from which this one was forked.
    """
    cdef CorePool *core = pool.core
    cdef Arena *arena
    cdef uint32_t i, tag, names = <uint32_t> len(pool.tag_names)         # safe cast: at most TAGS
    if core is NULL or pool.made != fork_count:
        return None
    streams = []
    for i in range(count_read(&core.arena_count)):
        arena = core.arenas[i]
        streams.append({
            "stream": <size_t> arena.stream, "name": arena_name(arena), "kind": KINDS[arena.role],
            "default_tag": pool.tag_names[arena.default_tag],
            "handovers": arena.lock.revocations,
            "slow_ns": arena.tally.slow_ns, "slow_longest_ns": arena.tally.slow_longest_ns,
            "live": stale_read(&arena.live), "requested": stale_read(&arena.requested),
            "requested_peak": max(arena.requested_peak, arena.past_requested_peak),
            "asleep": stale_read(&arena.sleep.asleep),
            "reserved": stale_read(<size_t *> &arena.pages) * core.options.granule,
            "tags": {pool.tag_names[tag]: (arena.tag_live[tag], arena.tag_blocks[tag])
                     for tag in range(1, names) if arena.tag_blocks[tag]},
            "counters": {**counters_dict(&arena.counters), "hits": arena_hits(arena)},
        })
    return {
        "limit": core.options.limit, "headroom": core.options.headroom,
        "reserved": stale_read(&core.source.reserved),
        "reserved_peak": stale_read(&core.source.reserved_peak),
        "spare": stale_read(&core.source.spare_bytes), "ooms": core.reports.oom.number,
        "driver_calls": calls_dict(core.source.calls),
        "driver_failures": calls_dict(core.source.failed),
        "refusals": {name: core.source.refused[i] for i, name in enumerate(REFUSERS)},
        "sleeps": core.sleeping.sleeps, "wakes": core.sleeping.wakes, "streams": streams,
        "budgets": budgets_of(pool), "joint_requested_peak": joint_peak(core),
    }


cdef dict calls_dict(const uint64_t *calls):
    return {CALL_NAMES[i]: calls[i] for i in range(<uint32_t> CALLS)}


cdef dict counters_dict(const Counters *counters):
    return {
        "hits": counters.hits, "fits": counters.fits, "recalls": counters.recalls,
        "slow": counters.slow, "failures": counters.failures, "steals": counters.steals,
        "donated": counters.donated, "syncs": counters.syncs,
        "sync_failures": counters.sync_failures,
        "flushes": counters.flushes, "refused": counters.refused,
        "rungs": {name: counters.rungs[i] for i, name in enumerate(RUNG_WORDS)},
    }


# ---- refusals -----------------------------------------------------------------------------------

cdef list refusals_new(Pool pool):
    """Return the refusals to log as (kind, count since the last log entry, bytes)."""
    cdef Source *source = &pool.core.source
    cdef uint64_t[REFUSALS] counts
    cdef uint64_t[REFUSALS] times
    cdef size_t[REFUSALS] sizes
    spin_enter(&source.lock)
    memcpy(counts, source.refused, sizeof(counts))
    memcpy(times, source.refused_told, sizeof(times))
    memcpy(sizes, source.refused_bytes, sizeof(sizes))
    spin_leave(&source.lock)
    known = refusals_told.setdefault(pool, [(0, 0)] * len(REFUSERS))
    found = []
    for i, name in enumerate(REFUSERS):
        if times[i] != known[i][0]:
            found.append((name, counts[i] - known[i][1], sizes[i]))
            known[i] = (times[i], counts[i])
    return found


cdef str refuser(Pool pool, str kind):
    if kind == "limit":
        return f"its limit is {readable(pool.core.options.limit)}"
    if kind == "headroom":
        return f"no more than its headroom of {readable(pool.core.options.headroom)} is free"
    return f"the driver answers {pool.core.source.last_error}"


def refusals_tell():
    """Log the refusals to grow of all pools since the last call."""
    cdef Pool pool
    for pool in open_pools():
        for kind, count, size in refusals_new(pool) if pool.core is not NULL else ():
            times = f" ({count} times since this was told last)" if count > 1 else ""
            (info_log if kind == "limit" else warning_log)(
                "pool", "%s could not grow by %s, as %s%s: it goes on with memory of its own, "
                "moved, if that is enough", pool.name, readable(size), refuser(pool, kind), times)


# ---- statistics ---------------------------------------------------------------------------------

cdef object stream_stats(Arena *arena):
    cdef ArenaStats stats
    with nogil:
        arena_stats(arena, &stats)
    return StreamStats(
        stream=<size_t> arena.stream, kind=KINDS[arena.role], allocated=stats.allocated,
        allocated_peak=stats.allocated_peak, requested=stats.requested,
        requested_peak=stats.requested_peak, reserved=stats.reserved, cached=stats.cached,
        free=stats.free, waiting=stats.waiting, asleep=stats.asleep,
        largest_free=stats.largest_free,
        live_blocks=stats.live_blocks, frees=stats.frees, name=arena_name(arena),
        **counters_dict(&stats.counters))


cdef dict source_stats(CorePool *core):
    cdef size_t reserved, peak, spare
    cdef uint64_t[CALLS] calls
    cdef uint64_t[CALLS] failed
    spin_enter(&core.source.lock)
    reserved = core.source.reserved
    peak = core.source.reserved_peak
    spare = core.source.spare_bytes
    memcpy(calls, core.source.calls, sizeof(calls))
    memcpy(failed, core.source.failed, sizeof(failed))
    spin_leave(&core.source.lock)
    return {"reserved": reserved, "reserved_peak": peak, "spare": spare,
            "driver_calls": calls_dict(calls), "driver_failures": calls_dict(failed)}


def tag_totals(Pool pool not None):
    """Return live bytes by tag, for all tags of the pool.

    Bytes without a tag count for the default tag of their stream; without one, they are left out.
    """
    cdef Arena *arena
    cdef uint32_t i, tag
    cdef size_t untagged
    totals = dict.fromkeys(pool.tag_names[1:], 0)
    for i in range(count_read(&pool.core.arena_count)):
        arena = pool.core.arenas[i]
        untagged = stale_read(&arena.live)
        for tag in range(1, <uint32_t> len(pool.tag_names)):             # safe cast: at most TAGS
            totals[pool.tag_names[tag]] += arena.tag_live[tag]
            untagged -= min(arena.tag_live[tag], untagged)
        if arena.default_tag:
            totals[pool.tag_names[arena.default_tag]] += untagged
    return totals


cdef size_t joint_peak(CorePool *core) noexcept:
    """Return the most bytes that were requested at one time over all streams."""
    cdef Peak found
    cdef size_t noted
    if count_read(&core.arena_count) == 1:
        return max(core.arenas[0].requested_peak, core.arenas[0].past_requested_peak)
    with nogil:
        peak_read(core, &found)
        noted = stale_read(&core.source.joint_peak)
    return max(found.requested, noted)


cdef dict budgets_of(Pool pool):
    cdef uint16_t tag
    found = {}
    for name in sorted(pool.budgeted):
        tag = pool.tags[name]
        found[name] = BudgetStats(
            pool.core.budget[tag].limit, stale_read(&pool.core.budget[tag].live),
            pool.core.budget[tag].refused)
    return found


def stats(Pool pool not None):
    """Return the result of `Pool.stats`."""
    cdef CorePool *core = pool.core
    cdef uint32_t i
    streams = tuple([stream_stats(core.arenas[i]) for i in range(count_read(&core.arena_count))])
    total = {name: sum([getattr(one, name) for one in streams]) for name in (
        "allocated", "allocated_peak", "requested", "requested_peak", "asleep")}
    return PoolStats(
        **total, **source_stats(core), limit=core.options.limit, streams=streams,
        tags=tag_totals(pool), ooms=core.reports.oom.number, budgets=budgets_of(pool),
        joint_requested_peak=joint_peak(core))


def blocks(Pool pool not None, stream):
    """Return the result of `Pool.blocks`."""
    cdef Arena *arena = arena_find(pool.core, handle_of(stream), ROLE_STREAM)
    cdef Block *copies
    cdef Block *block
    cdef uint64_t i, count = 0
    found = []
    if arena is NULL:
        return found
    # No lock is held while Python objects are made: the garbage collector may run then and free
    # blocks.
    copies = arena_copy(arena, &count)
    if copies is NULL:
        raise MemoryError("a copy of the blocks' descriptors")
    try:
        for i in range(count):
            block = &copies[i]
            live = block.state == BLOCK_LIVE
            tag = block.tag if block.tag else arena.default_tag
            found.append(BlockInfo(
                <size_t> block.addr, block.size, STATES[block.state],
                block.requested if live else 0, pool.tag_names[tag] if live else ""))
    finally:
        c_free(copies)
    return found


# ---- pending frees ------------------------------------------------------------------------------

cdef struct Wait:
    aclrtStream stream          # the stream whose work must be complete; not valid if `device`
    size_t size                 # bytes of the block
    uint16_t tag                # tag of the block
    bint device                 # the block waits for a synchronisation of the device


cdef uint64_t waits_copy(Arena *arena, Wait *out, uint64_t room) noexcept nogil:
    """Copy an arena's pending frees to `out`, each block once for each stream that uses it.

    Return their number.  If it is larger than `room`, only the first `room` are copied.
    """
    cdef uint64_t count = 0
    cdef Use *oldest
    cdef Use *use
    lock_take(&arena.lock)
    oldest = arena.order.waiting
    while oldest != NULL:
        use = oldest
        while use != NULL:
            if count < room:
                out[count] = Wait(use.stream, use.block.size, use.block.tag, use.whole)
            count += 1
            use = use.next
        oldest = queue_after(arena, oldest)
    lock_drop(&arena.lock)
    return count


def waits(Pool pool not None):
    """Return the pending frees as tuples (stream, other, bytes, tag).

    `stream` is the block's own stream, and `other` the stream whose work must be complete; None:
    the device must be synchronised.  Blocks whose work is complete are freed first and not
    returned.
    """
    cdef Arena *arena
    cdef Wait *out
    cdef uint32_t i
    cdef uint64_t k, count
    found = []
    for i in range(count_read(&pool.core.arena_count)):
        arena = pool.core.arenas[i]
        with nogil:
            if arena.order.waiting is not NULL and arena.role != ROLE_FRAMEWORK:
                waiting_poll(arena)
            count = waits_copy(arena, NULL, 0)
        if count == 0:
            continue
        out = <Wait *> malloc(count * sizeof(Wait))
        if out is NULL:
            raise MemoryError("a copy of what waits")
        try:
            with nogil:
                count = min(waits_copy(arena, out, count), count)
            for k in range(count):
                found.append((
                    <size_t> arena.stream, None if out[k].device else <size_t> out[k].stream,
                    out[k].size, pool.tag_names[out[k].tag or arena.default_tag]))
        finally:
            c_free(out)
    return found


# ---- out of memory ------------------------------------------------------------------------------

cdef object hold_of(CorePool *core, const CoreHold *hold):
    return OomHold(
        <size_t> hold.stream, KINDS[hold.role], bool(hold.donates), hold.reserved, hold.live,
        hold.free, hold.largest_free, hold.whole, hold.waiting, name_in(core, hold.stream))


cdef dict tags_of(Pool pool, const size_t *tags):
    """Return bytes by the tag's name, the largest first."""
    found = {name: tags[i] for i, name in enumerate(pool.tag_names) if tags[i]}
    return dict(sorted(found.items(), key=bytes_least))


def bytes_least(item):
    return -item[1]


def last_oom(Pool pool not None):
    """Return the result of `Pool.last_oom`."""
    cdef CoreReport report
    spin_enter(&pool.core.lock)
    report = pool.core.reports.oom
    spin_leave(&pool.core.lock)
    return report_of(pool, &report) if report.number else None


def ooms(Pool pool not None):
    """Return the reports that the pool has kept, the oldest first."""
    cdef CoreReport[OOMS] reports
    cdef uint32_t i
    spin_enter(&pool.core.lock)
    memcpy(reports, pool.core.reports.ooms, sizeof(reports))
    spin_leave(&pool.core.lock)
    found = [report_of(pool, &reports[i]) for i in range(<uint32_t> OOMS) if reports[i].number]
    return sorted(found, key=number_of_report)


def oom_of(Pool pool not None, before, stream, size=None):
    """Return a stream's newest report with a number above `before` and with this size, or None.

    The pool's last report may be about another thread's allocation.  Other processes are asked what
    they hold, so no lock may be held that they could wait for.
    """
    mine = [report for report in ooms(pool)
            if report.number > before and report.stream == stream and size in (None, report.size)]
    found = mine[-1] if mine else None
    if found is not None and found.by_device:
        from acl.inside._processes import report_with_others

        others_told[pool] = found = report_with_others(found)
    return found


cdef int oom_log(report) except -1:
    """Log a report, or only count it if one of the same pool and tag was logged recently.

    Recently means within REPORTS_APART seconds.  A lower number than the last logged one means that
    a new pool has the name of an old one; then the report is logged.
    """
    if not heard("pool"):
        return 0
    now = monotonic()
    key = (report.pool, report.tag)
    last, number, kept_back = reports_logged.pop(key, (-REPORTS_APART, report.number, 0))
    if now - last < REPORTS_APART and report.number > number:
        reports_logged[key] = (last, report.number, kept_back + 1)
        return 0
    while len(reports_logged) >= REPORTS_MOST:          # forget the oldest entry
        del reports_logged[next(iter(reports_logged))]
    reports_logged[key] = (now, report.number, 0)
    since = f"\n  {kept_back} more like it since the last report" if kept_back else ""
    error_log("pool", "%s%s", report.details(), since, pool=report.pool, device=report.device,
              tag=report.tag, stream=report.stream, stream_name=report.stream_name,
              size=report.size, report=report.number,
              kept_back=kept_back)
    return 0


def oom_told(report, int status, str function):
    """Return the exception for a report, and log the report."""
    if report is None:
        return OutOfMemoryError(
            status, function, "the pool was closed meanwhile, or too much has failed since")
    oom_log(report)
    if issubclass(CLASSES.get(report.code, OutOfMemoryError), DeviceLostError):
        error = error_for(report.code, function, str(report))   # memory did not run out
        error.report = report
        return error
    return OutOfMemoryError(status, function, str(report), report)


def number_of_report(report):
    return report.number


cdef object report_of(Pool pool, CoreReport *told):
    cdef CoreReport report = told[0]
    asked = others_told.get(pool)
    others = ({"other_processes": asked.other_processes, "processes": asked.processes}
              if asked is not None and asked.number == report.number else {})
    tried = [words for i, words in enumerate(RUNG_WORDS.values()) if report.attempt.tried >> i & 1]
    stopped = [name for i, name in enumerate(STOPS) if report.attempt.stopped >> i & 1]
    return OomReport(
        size=report.size, stream=<size_t> report.stream, code=report.attempt.status,
        limit=report.limit, reserved=report.reserved, live=report.live, free=report.free,
        largest_free=report.largest_free, waiting=report.waiting, others=report.others,
        device_free=report.device_free, capturing=bool(report.capturing),
        moved=bool(report.moved), tag=tag_name(pool, &report), pool=pool.name, device=pool.device,
        headroom=report.headroom, spare=report.spare, missing=report.missing,
        budget=report.budget, budget_live=report.budget_live,
        device_total=pool.core.options.device_bytes or device_bytes(pool.device)[1],
        steals=bool(pool.core.options.steals),
        tried=tuple(tried), stopped=tuple(stopped), tags=tags_of(pool, report.tags),
        holds=tuple([hold_of(pool.core, &report.holds[i]) for i in range(report.hold_count)]),
        stream_name=name_in(pool.core, report.stream),
        number=report.number, granule=pool.core.options.granule,
        joint_requested_peak=joint_peak(pool.core),
        failed_runs=tuple(sorted(pool.failed_runs or ())), **others)


cdef str tag_name(Pool pool, const CoreReport *report):
    return pool.tag_names[report.tag]


# ---- the device ---------------------------------------------------------------------------------

def device_bytes(int device):
    """Return free and total bytes of a device, of the kind of memory that its chip has.

    Both are 0 if the driver refuses the query.
    """
    cdef size_t free = 0, total = 0
    cdef aclError status
    with Device(device):
        with nogil:
            status = aclrtGetMemInfo(ACL_HBM_MEM, &free, &total)
            if status != ACL_SUCCESS or total == 0:
                status = aclrtGetMemInfo(ACL_DDR_MEM, &free, &total)
    if status != ACL_SUCCESS:
        free = total = 0
    return free, total


def card(int device):
    """Return the number that a device has on the machine, for all processes; -1 if unknown."""
    cdef int32_t found = -1
    cdef aclError status
    if not libacl_has(b"aclrtGetPhyDevIdByUserDevId"):
        return -1
    with nogil:
        status = aclrtGetPhyDevIdByUserDevId(device, &found)
    return found if status == ACL_SUCCESS else -1


def components(int device):
    """Return this process's bytes on a device by component of the runtime; None if unknown."""
    cdef aclrtMemUsageInfo infos[64]
    cdef size_t i, count = 0
    cdef aclError status
    if not libacl_has(b"aclrtGetMemUsageInfo"):
        return None
    memset(infos, 0, sizeof(infos))
    with nogil:
        status = aclrtGetMemUsageInfo(device, infos, 64, &count)
    if status != ACL_SUCCESS:
        return None
    return {infos[i].name.decode(errors="replace"): infos[i].curMemSize
            for i in range(min(count, <size_t> 64))}
