"""Reports of failed allocations: why memory ran out, and changes that would have been enough.

A report is made in C (`oom_note`) when the allocation fails, so it is right however late it is read.  An advice is
given only if, by the numbers of the report, it is enough.

This module uses no device and no C.  So it can be imported anywhere, and its classes can be pickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from acl.inside._snapshot import readable, stream_text
from acl.inside._text import printable

__all__ = ["OomHold", "OomProcess", "OomReport"]

#: ACL_ERROR_RT_PARAM_INVALID: the driver does not support the page size.
REFUSED = 107000
#: Error codes of a device that does not answer.
LOST = (507010, 507899)
MOST_ADVICE = 2
MOST_TAGS = 8
MOST_COMMAND = 100              # characters of a process's command line in a report


@dataclass(frozen=True)
class OomHold:
    """One stream's part of the pool when an allocation failed.

    Attributes
    ----------
    stream, kind : int, str
        The stream's handle (0 for the default stream), and its kind as in `StreamStats`.
    donates : bool
        True if other parts may take its free pages.  Pages of captured graphs and of arenas with
        early frees are not taken.
    reserved, live, free, largest_free, waiting : int
        Bytes, as in `StreamStats`; `free` and `largest_free` include cached blocks.
    whole : int
        Bytes of `free` that are whole pages, which a trim would free.
    name : str
        The stream's name, as in `StreamStats`.
    """

    stream: int
    kind: str
    donates: bool
    reserved: int
    live: int
    free: int
    largest_free: int
    whole: int
    waiting: int
    name: str = ""


@dataclass(frozen=True)
class OomProcess:
    """Another process that held memory of the device, as far as `aclpool top` can see it.

    Attributes
    ----------
    pid, command : int, str
        The process id, and the command line of the process.
    pools : tuple of str
        The names of its pools on the device.
    reserved, unused : int
        Bytes that these pools held, and how many of them no block of theirs needed.
    outside : int
        Bytes that the process held outside its pools; 0 if its driver does not report them.
    answered : bool
        False if the process did not answer in time; then only `pid` is known.
    """

    pid: int
    command: str = ""
    pools: tuple[str, ...] = ()
    reserved: int = 0
    unused: int = 0
    outside: int = 0
    answered: bool = True

    @property
    def bytes(self) -> int:
        """All bytes of the device that the process is known to hold."""
        return self.reserved + self.outside

    def __str__(self) -> str:
        if not self.answered:
            return f"process {self.pid} did not answer"
        unused = f", of which {readable(self.unused)} are unused in {', '.join(self.pools)}" if self.pools else ""
        command = self.command if len(self.command) <= MOST_COMMAND else self.command[:MOST_COMMAND] + "..."
        return printable(f"process {self.pid} ({command}): {readable(self.bytes)}{unused}")


@dataclass(frozen=True)
class OomReport:
    """Why an allocation could not be served.

    Attributes
    ----------
    size, stream, tag : int, int, str
        Requested bytes, the stream's handle, and the tag.
    pool, device : str, int
        The pool's name, and the ordinal of its device.
    code : int
        Last error status of the driver in this allocation; 0 if there was none.
    limit, headroom, reserved, spare, live : int
        The pool's limit and headroom (0 for none), the bytes that it held, spare bytes (in no stream's part),
        and live bytes.  Unlike `tags`, `live` leaves out blocks that are asleep.
    free, largest_free, waiting : int
        Bytes of the stream's part that were free, those of its largest free block, and of pending frees.
    missing : int
        Bytes of memory that the best placement for the block lacked.
    others : int
        Bytes that other streams' parts held.
    device_free, device_total : int
        Free and total bytes of the device.
    capturing, moved : bool
        True if the stream was being captured; true if pages could be moved.
    steals : bool
        True if the pool may move pages at all (``Pool(steal=...)``).
    tried : tuple of str
        The fallback steps that were tried, in words.
    stopped : tuple of str
        What stood in the way: ``"limit"``, ``"headroom"``, ``"driver"``, ``"busy"`` (a stream that
        could not be waited for), ``"device"`` (the live blocks leave too little of it),
        ``"ranges"`` (the stream has as many ranges of addresses as it can have, 65,535), ``"budget"``
        (only the tag's budget was tested), ``"capture"`` (the stream is or may be captured, and
        there is no memory for the capture).
    tags : dict of str to int
        Live bytes of the whole pool by tag, the largest first; ``""`` for blocks without a tag.
    holds : tuple of OomHold
        The streams' parts: that of the allocation first, then those that held the most.
    budget, budget_live : int
        The limit of the tag's budget (0 for none), and the bytes that count in it.
    number : int
        Number of the report in its pool, from 1.
    failed_runs : tuple of str
        Models (`acl.Model.name`) whose last run found no memory.  Their tags mostly hold what that run left
        allocated; it is freed when the model runs again or is closed.
    granule : int
        Bytes of a page of the pool.
    joint_requested_peak : int
        The most bytes that were asked for at one time over all streams, when the report was read.
    other_processes : int
        Bytes of the device that other processes and the system held; -1 if the driver does not report them, or was not
        asked because the device was not the reason.
    processes : tuple of OomProcess
        The processes among them that `aclpool top` can see, those that hold the most first.  They are asked when a
        call of this package fails; for memory that ACL asked for on its own, only under ``aclpool run``.
    stream_name : str
        The name of `stream`, as in `StreamStats`.
    """

    size: int
    stream: int
    code: int
    limit: int
    reserved: int
    live: int
    free: int
    largest_free: int
    waiting: int
    others: int
    device_free: int
    capturing: bool
    moved: bool
    tag: str = ""
    pool: str = ""
    device: int = 0
    headroom: int = 0
    spare: int = 0
    missing: int = 0
    device_total: int = 0
    steals: bool = True
    tried: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    tags: dict[str, int] = field(default_factory=dict)
    holds: tuple[OomHold, ...] = ()
    number: int = 1
    failed_runs: tuple[str, ...] = ()
    budget: int = 0
    budget_live: int = 0
    granule: int = 0
    joint_requested_peak: int = 0
    other_processes: int = -1
    processes: tuple[OomProcess, ...] = ()
    stream_name: str = ""

    @property
    def top_tag(self) -> str:
        """The tag with the most live bytes; ``""`` if no block has a tag."""
        return max((name for name in self.tags if name), key=lambda name: self.tags[name], default="")

    @property
    def top_bytes(self) -> int:
        """Live bytes of `top_tag`."""
        return self.tags.get(self.top_tag, 0) if self.top_tag else 0

    @property
    def whole(self) -> int:
        """Bytes of whole free pages in all parts."""
        return sum(hold.whole for hold in self.holds)

    @property
    def changes(self) -> tuple[str, ...]:
        """At most two changes, of which each one alone would have been enough by these numbers."""
        found: list[str] = []
        for advice in self.candidates():
            if len(found) < MOST_ADVICE:
                found.append(advice)
        return tuple(found) or (self.last_resort(),)

    @property
    def advice(self) -> str:
        """The first of `changes`."""
        return self.changes[0]

    # -- advice

    def candidates(self) -> Iterator[str]:
        """Return all changes that would have been enough, the cheapest first."""
        if self.code in LOST:
            yield "memory is not what is missing: the device does not answer any more"
            return
        if "budget" in self.stopped:
            yield from self.of_budget()
            return
        if self.device_total and self.size > self.device_total:
            yield f"no change of the pool would do: the device has {readable(self.device_total)} in all"
            return
        if self.code == REFUSED:
            yield "the driver refuses such pages: the granule must be a multiple of its own (2MiB is)"
            return
        if self.capturing and self.whole + self.room >= self.missing:
            yield "the stream is being captured: warm the pool up with the same shapes before the capture"
        if self.waiting >= self.size:
            yield (f"freed blocks wait for other streams ({readable(self.waiting)}): synchronise those, "
                   "then try again")
        left = self.left
        if left and sum(left.values()) >= self.missing:
            yield (f"failed runs left {readable(sum(left.values()))}, of {', '.join(left)}: run such a model "
                   "again, with inputs that fit, or close it")
        yield from self.of_trims()
        yield from self.of_bounds()

    def of_budget(self) -> Iterator[str]:
        """Return the advice if the tag's budget alone was the reason."""
        wanted = self.budget_live + rounded(self.size)
        bound = f"the budget of {self.tag!r} is in the way: {readable(self.budget_live)} of {readable(self.budget)} " \
                "are live"
        if self.limit and wanted > self.limit:
            yield f"{bound}, and the pool's limit of {readable(self.limit)} allows no budget that would do"
        else:
            fits = rounded(self.size) <= self.budget
            frees = f"free {readable(wanted - self.budget)} with this tag, or " if fits else ""
            yield f"{bound}; {frees}set pool.budget({self.tag!r}, {wanted})"

    @property
    def left(self) -> dict[str, int]:
        """Bytes that failed runs left allocated, by the model's tag."""
        return {name: self.tags[name] for name in self.failed_runs if self.tags.get(name)}

    @property
    def room(self) -> int:
        """Bytes that the pool could still have used: spare frames, and what limit and headroom leave of the device."""
        device = max(self.device_free - self.headroom, 0)
        return self.spare + (min(max(self.limit - self.reserved, 0), device) if self.limit else device)

    def of_trims(self) -> Iterator[str]:
        """Return the advice if whole free pages could not be moved."""
        short = self.missing - self.room
        if short <= 0 or self.capturing:
            return
        still = [hold for hold in self.holds if hold.donates and hold.whole]
        kept = [hold for hold in self.holds if not hold.donates and hold.kind != "capture" and hold.whole]
        graphs = [hold for hold in self.holds if hold.kind == "capture"]
        own = self.holds[0].whole if self.holds and self.holds[0].donates else 0
        if total(still) >= short:
            yield self.of_moves(own, short, still)
        elif total(still) + total(kept) >= short:
            yield ("memory may not move here, as frees come early: drain the framework's queue and call "
                   f"trim(drained=True), which gives back {readable(total(still) + total(kept))}")
        elif total(still) + held(graphs) >= short:
            yield (f"captured graphs keep {readable(held(graphs))}: release those that are gone "
                   "(Capture.release)")

    def of_moves(self, own: int, short: int, still: list[OomHold]) -> str:
        """Return the advice for free pages that may move but could not."""
        if not self.steals:
            return (f"memory may not move (steal=False), and {readable(total(still))} of whole pages are free: "
                    "call trim(), which gives them back")
        if own >= short:
            return (f"this stream's own free pages ({readable(own)}) cannot move while it is at work: "
                    "synchronise it, then try again")
        return (f"other streams of the pool hold memory and are at work: {names(still)} free in whole pages; "
                "wait for them, then call trim()")

    def of_bounds(self) -> Iterator[str]:
        """Return the limit and the headroom that would have been enough."""
        fresh = max(self.missing - self.spare, 0)
        limit = self.reserved + fresh
        room = self.device_free - self.headroom
        if self.limit and limit > self.limit and room >= fresh:
            yield (f"the pool's limit is in the way: it is {readable(self.limit)}, and "
                   f"{readable(limit)} would do ({limit} bytes){self.of_peak(limit, room - fresh)}")
        fits = not self.limit or limit <= self.limit
        if self.headroom and room < fresh <= self.device_free and fits:
            yield (f"the headroom of {readable(self.headroom)} is what stopped it: the device has "
                   f"{readable(self.device_free)} free, and {readable(fresh)} are missing; at most "
                   f"{self.device_free - fresh} bytes of headroom would do")
        if self.headroom and room < fresh <= self.device_free and not fits:
            yield (f"limit and headroom are both in the way: {readable(limit)} of limit and at most "
                   f"{self.device_free - fresh} bytes of headroom would do")

    def of_peak(self, limit: int, room: int) -> str:
        """Return, in words, the limit that this request needs at the load's peak, if the device has `room` for it.

        Empty if the limit that serves the request now is enough at the peak too.
        """
        more = max(self.joint_requested_peak - self.live, 0)
        more = -(-more // self.granule) * self.granule if self.granule else more
        if not 0 < more <= room:
            return ""
        return (f"; the load has asked for {readable(self.joint_requested_peak)} at one time over all streams, and "
                f"with this request at such a time it needs about {readable(limit + more)} ({limit + more} bytes)")

    def last_resort(self) -> str:
        """Return the advice if no single change is enough."""
        if self.limit and self.missing > self.limit - self.reserved + self.spare:
            needed = self.missing - max(self.limit - self.reserved + self.spare, 0)
            return (f"the pool's limit is in the way, and the device has no room for a higher one: free "
                    f"{readable(needed)} of what is live{self.most()}")
        if self.free >= self.size > self.largest_free and self.holds and self.holds[0].whole < self.missing:
            return (f"{readable(self.free)} are free on this stream, but in pieces: the largest has "
                    f"{readable(self.largest_free)}, and no whole pages are among them{self.most()}")
        if self.missing <= self.room:
            return (f"by these numbers there was room, but the driver refused with {self.code}: see its own log, "
                    "and what `aclpool doctor` says of this machine")
        outside = self.device_total - self.device_free - self.reserved
        others = f", or of the {readable(outside)} outside the pool" if outside > 0 and self.device_total else ""
        return (f"the device is full: free {readable(max(self.missing - self.device_free, 0))} of what is "
                f"live{self.most()}{others}{self.of_processes()}")

    def of_processes(self) -> str:
        """Return the processes that can be asked to give back unused memory, in words."""
        asked = [f"`aclpool trim {one.pid}` (of {readable(one.unused)} unused)" for one in self.processes if one.unused]
        return f"; what is idle in other processes comes back by {', '.join(asked[:3])}" if asked else ""

    @property
    def by_device(self) -> bool:
        """True if the device lacked memory: then it matters what other processes hold."""
        return self.code not in LOST and any(reason in self.stopped for reason in ("driver", "device", "headroom"))

    @property
    def unknown_bytes(self) -> int:
        """Bytes of `other_processes` that none of `processes` is known to hold."""
        return max(self.other_processes - sum(one.bytes for one in self.processes), 0)

    def most(self) -> str:
        """Return the tag with the most live bytes, in brackets."""
        return f" (most is of {self.top_tag!r}, {readable(self.top_bytes)})" if self.top_tag else ""

    # -- words

    def headline(self) -> str:
        """Return the line about the failed request."""
        who = f" for {self.tag!r}" if self.tag else ""
        where = stream_text(self.stream_name, self.stream)
        of = f" of {self.pool}" if self.pool else ""
        return f"{readable(self.size)}{who} could not be had on {where}{of}"

    def untried(self) -> str:
        """Return the reason why nothing was tried, in words."""
        reasons = {
            "capture": "the stream is or may be captured",
            "budget": f"the budget of {self.tag!r} is used up",
            "limit": "the limit is below what is missing",
            "device": "the device cannot hold what is missing",
            "ranges": "the stream can have no further address range",
            "driver": "the driver refused an address range",
        }
        return next((f"nothing, as {words}" for stop, words in reasons.items() if stop in self.stopped), "nothing")

    def state(self) -> str:
        """Return the state of the pool in one line."""
        bounds = f", limit {readable(self.limit)}" if self.limit else ""
        bounds += f", headroom {readable(self.headroom)}" if self.headroom else ""
        bounds += f", budget of {self.tag!r} {readable(self.budget)}" if self.budget else ""
        return f"{readable(self.live)} live of {readable(self.reserved)} reserved{bounds}"

    def details(self) -> str:
        """Return the whole report in several lines, for logs."""
        what = "device lost" if self.code in LOST else "out of memory"
        lines = [f"{what}: {self.headline()}", f"  pool: {self.state()}"]
        lines.append(
            f"  this stream: {readable(self.free)} free, the largest piece {readable(self.largest_free)}; "
            f"{readable(self.waiting)} wait for other streams; {readable(self.missing)} of memory were missing")
        tags = [f"{name or '(no tag)'} {readable(size)}" for name, size in list(self.tags.items())[:MOST_TAGS]]
        lines += [f"  live by tag: {', '.join(tags)}"] if tags else []
        left = [f"{name} {readable(size)}" for name, size in self.left.items()]
        lines += [f"  left by failed runs: {', '.join(left)}, until the model runs again or is closed"] if left else []
        for hold in self.holds[1:]:
            lines.append(
                f"  {stream_text(hold.name, hold.stream)} ({hold.kind}): {readable(hold.reserved)} reserved, "
                f"{readable(hold.live)} live, {readable(hold.whole)} free in whole pages")
        total = f" of {readable(self.device_total)}" if self.device_total else ""
        lines.append(f"  device {self.device}: {readable(self.device_free)}{total} free")
        lines += [f"  {one}" for one in self.processes]
        if self.unknown_bytes:
            known = any(one.answered for one in self.processes)
            lines.append(f"  {'the rest of the' if known else 'all'} other processes, and the system: "
                         f"{readable(self.unknown_bytes)}")
        lines.append(f"  tried: {', '.join(self.tried) or self.untried()}")
        if self.stopped:
            lines.append(f"  stopped by: {', '.join(self.stopped)}" + (f" ({self.code})" if self.code else ""))
        return printable("\n".join([*lines, *(f"  -> {change}" for change in self.changes)]), lines=True)

    def __str__(self) -> str:
        return printable("; ".join([self.headline(), self.state(), *self.changes]))


def rounded(size: int) -> int:
    """Return the bytes of the block for a request: a multiple of 512."""
    return max(-(-size // 512), 1) * 512


def total(holds: list[OomHold]) -> int:
    """Return the bytes of whole free pages."""
    return sum(hold.whole for hold in holds)


def held(holds: list[OomHold]) -> int:
    """Return the bytes that captured graphs hold."""
    return sum(hold.reserved for hold in holds)


def names(holds: list[OomHold]) -> str:
    return ", ".join(f"{readable(hold.whole)} on {stream_text(hold.name, hold.stream)}" for hold in holds[:3])
