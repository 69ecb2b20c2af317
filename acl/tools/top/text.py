"""`aclpool top` as lines of text: answers in, lines with a style each out.  Knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from acl.inside._snapshot import readable
from acl.tools.top.sample import Answer, PoolRates, Rates, served, stream_key, total

__all__ = ["SORTS", "Line", "Options", "lines"]

#: What the pools can be sorted by: name, and its key with the largest first.
SORTS = ("reserved", "live", "alloc/s", "slow/s", "OOMs", "pid")
MOST_TAGS = 8
BARS = {"unicode": ("█", "▒", "░"), "ascii": ("#", "=", ".")}


@dataclass(frozen=True)
class Line:
    """A line and what it is: title, device, heading, pool, stream, tag, alarm or note."""

    text: str
    style: str = "note"


@dataclass(frozen=True)
class Options:
    """How to show it.

    Attributes
    ----------
    sort : str
        One of `SORTS`.
    unfold : bool
        Streams and tags under each pool.
    width : int
        Columns of the terminal; 0 for no limit.
    unicode : bool
        Whether bars may be drawn with block characters.
    """

    sort: str = "reserved"
    unfold: bool = True
    width: int = 0
    unicode: bool = True


def count(value: float) -> str:
    """A rate or a count in few characters: 0, 0.3, 12, 4.5k, 1.2M."""
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f}{sign}"
    return f"{value:.1f}" if 0 < value < 10 and value % 1 else f"{value:.0f}"


def percent(part: float | None) -> str:
    """A part in percent; a dash for None."""
    if part is None:
        return "-"
    return f"{part * 100:.1f}" if part < 0.9995 else "100"


def command_of(answer: Answer) -> str:
    """How the process was started, without the folder of its program."""
    program, space, rest = answer.command.partition(" ")
    return program.rsplit("/", 1)[-1] + space + rest


def short(text: str, width: int) -> str:
    """A text cut to a width, the end marked."""
    return text if len(text) <= width else text[:max(0, width - 1)] + "~"


# ---- devices ----

def bar(parts: Sequence[tuple[int, str]], whole: int, width: int, rest: str) -> str:
    """Parts of a whole as runs of characters; a part that is not nothing has at least one."""
    drawn, left = "", width
    for size, sign in parts:
        run = min(left, max(1 if size else 0, round(size / whole * width) if whole else 0))
        drawn += sign * run
        left -= run
    return drawn + rest * left


def device_lines(answers: Sequence[Answer], options: Options) -> Iterator[Line]:
    """A line for each device: what the pools of all listed processes hold, what others do, what is free.

    What one process calls others holds the other listed processes' pools, so it is taken from the total.
    A simulated device is its process's own.
    """
    known: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for answer in answers:
        whose = f" simulated in {answer.pid}" if answer.document["backend"] == "sim" else ""
        for device in answer.document["devices"]:
            known.setdefault((device["device"], whose), []).append(device)
    full, half, empty = BARS["unicode" if options.unicode else "ascii"]
    for (ordinal, whose), told in sorted(known.items()):
        whole, free = told[-1]["total"], told[-1]["free"]
        ours = min(sum(device["pools"] for device in told), whole - free)
        rest = max(0, whole - free - ours)
        drawn = bar(((ours, full), (rest, half)), whole, 24, empty)
        yield Line(f"device {ordinal}{whose}  {drawn}  {readable(whole)}: pools {readable(ours)}, "
                   f"other {readable(rest)}, free {readable(free)}", "device")


# ---- pools ----

def sort_key(sort: str, answer: Answer, pool: dict[str, Any]) -> tuple[float, int, str]:
    """Sorts ascending, so the largest come negative."""
    rates = answer.rates.get(pool["name"], PoolRates())
    value = {"reserved": pool["reserved"], "live": pool["allocated"], "alloc/s": rates.allocations,
             "slow/s": rates.slow, "OOMs": pool["ooms"], "pid": 0}[sort]
    return (-value, answer.pid, pool["name"])


@dataclass(frozen=True)
class Column:
    """A number of a pool or a stream: the heading, the width, and what stands there.

    `cell` gets what the process told of the pool or the stream, and its rates; None: there are none yet.
    """

    heading: str
    width: int
    cell: Callable[[dict[str, Any], Rates | None], str]


def streams_of(part: dict[str, Any]) -> list[dict[str, Any]]:
    """The streams of a pool; a stream is its own."""
    streams: list[dict[str, Any]] = part.get("streams", [part])
    return streams


def limit_of(part: dict[str, Any]) -> str:
    """A pool's limit; a stream has none."""
    if "limit" not in part:
        return ""
    return readable(part["limit"]) if part["limit"] else "-"


def share_of(part: dict[str, Any], name: str) -> float:
    """The part of all allocations since the beginning that are counted under a name."""
    return total(streams_of(part), name) / max(1, served(streams_of(part)))


def unused(part: dict[str, Any]) -> str:
    """The part of a pool's or a stream's reserved bytes that was not asked for, or only to sleep."""
    awake = max(0, part["requested"] - part.get("asleep", 0))
    return percent(max(0.0, 1 - awake / part["reserved"])) + "%" if part["reserved"] else "-"


#: What stands to the right of a pool's or a stream's name.  docs/top.md says what each means.
COLUMNS = (
    Column("LIVE", 10, lambda part, rates: readable(part["allocated"])),
    Column("PEAK", 10, lambda part, rates: readable(total(streams_of(part), "allocated_peak"))),
    Column("RESERVED", 10, lambda part, rates: readable(part["reserved"])),
    Column("LIMIT", 10, lambda part, rates: limit_of(part)),
    Column("UNUSED", 6, lambda part, rates: unused(part)),
    Column("ALLOC/S", 8, lambda part, rates: count(rates.allocations) if rates else "-"),
    Column("HIT%", 5, lambda part, rates: percent(rates.hit_rate if rates else share_of(part, "hits"))),
    Column("FAST%", 5, lambda part, rates: percent(rates.fast_rate if rates else max(0.0, 1 - share_of(part, "slow")))),
    Column("SLOW/S", 7, lambda part, rates: count(rates.slow) if rates else "-"),
    Column("OOMS", 5, lambda part, rates: str(part["ooms"] if "ooms" in part else part["failures"])),
)
#: The widths of a process's number, a pool's name and its device, which stand before the columns.
PID, NAME, DEVICE = 8, 14, 3
APART = "  "


def heading() -> str:
    """The line of the headings."""
    named = (f"{'PID':>{PID}}", f"{'POOL':{NAME}}", f"{'DEV':>{DEVICE}}")
    return APART.join((*named, *(column.heading.rjust(column.width) for column in COLUMNS), "COMMAND"))


def cells(part: dict[str, Any], rates: Rates | None) -> str:
    """The columns of a pool or a stream; what is too long pushes the rest."""
    return APART.join(column.cell(part, rates).rjust(column.width) for column in COLUMNS)


def pool_row(answer: Answer, pool: dict[str, Any]) -> str:
    """A pool's line."""
    named = (f"{answer.pid:>{PID}}", f"{short(pool['name'], NAME):{NAME}}", f"{pool['device']:>{DEVICE}}")
    return APART.join((*named, cells(pool, answer.rates.get(pool["name"]))))


def stream_row(stream: dict[str, Any], rates: Rates | None) -> str:
    """A stream's line under its pool, in the same columns."""
    name = f"stream {stream['stream']:#x}" if stream["stream"] else "default stream"
    if stream["kind"] != "stream":
        name += f" ({stream['kind']})"
    asleep = f"{readable(stream['asleep'])} asleep, " if stream.get("asleep") else ""
    return under(name, cells(stream, rates)) + (
        f"  {stream['live_blocks']:,} blocks, {asleep}largest free {readable(stream['largest_free'])}")


def under(name: str, text: str) -> str:
    """A line below a pool: the name where the pool's own stands, then the columns from LIVE on."""
    room = PID + NAME + DEVICE + len(APART)
    return APART + short(name, room).ljust(room) + APART + text


def tag_rows(pool: dict[str, Any]) -> Iterator[str]:
    """The tags that hold most, the largest first."""
    held = sorted(((size, tag) for tag, size in pool["tags"].items() if size), reverse=True)
    for size, tag in held[:MOST_TAGS]:
        share = percent(size / max(1, pool["allocated"])) + "% of live"
        yield under(f"  # {tag or '(no tag)'}", readable(size).rjust(COLUMNS[0].width)) + f"  {share}"
    if len(held) > MOST_TAGS:
        yield f"    and {len(held) - MOST_TAGS} more tags"


def pool_lines(answer: Answer, pool: dict[str, Any], options: Options) -> Iterator[Line]:
    """A pool, and what is under it."""
    rates = answer.rates.get(pool["name"])
    yield Line(pool_row(answer, pool), "alarm" if rates and rates.ooms else "pool")
    if not options.unfold:
        return
    for stream in sorted(pool["streams"], key=lambda one: (-one["reserved"], one["stream"])):
        yield Line(stream_row(stream, rates.streams.get(stream_key(stream)) if rates else None), "stream")
    for text in tag_rows(pool):
        yield Line(text, "tag")
    if pool["last_oom"]:
        yield Line("    last OOM: " + pool["last_oom"], "alarm" if rates and rates.ooms else "note")


# ---- all of it ----

NOBODY = ("no process can be seen: start it with ACL_POOL_TOP=1, or let it call acl.serve_top(); "
          "both sides must run as the same user with the same ACL_POOL_TOP_DIR, if that is set")


def lines(answers: Sequence[Answer], options: Options, title: str = "") -> list[Line]:
    """The whole picture, cut to the width."""
    shown = [answer for answer in answers if answer.pools]
    idle = len(answers) - len(shown)
    made = [Line(title, "title")] if title else []
    if not answers:
        made.append(Line(NOBODY, "note"))
    made += device_lines(shown, options)
    if shown:
        made.append(Line(heading(), "heading"))
    pairs = [(answer, pool) for answer in shown for pool in answer.pools]
    for answer, pool in sorted(pairs, key=lambda pair: sort_key(options.sort, *pair)):
        first, *rest = pool_lines(answer, pool, options)
        made += [Line(f"{first.text}  {command_of(answer)}", first.style), *rest]
    if idle:
        made.append(Line(f"{idle} process{'es' * (idle != 1)} without a pool", "note"))
    if options.width:
        made = [Line(short(line.text, options.width), line.style) for line in made]
    return made
