"""`aclpool top` as text: turns answers into lines that have a style.  Independent of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from acl.inside._snapshot import readable, stream_text
from acl.tools.top.sample import Answer, PoolRates, Rates, served, stream_key, total

__all__ = ["SORTS", "Line", "Options", "lines"]

#: The values by which pools can be sorted, the largest first.
SORTS = ("reserved", "live", "alloc/s", "slow/s", "OOMs", "pid")
MOST_TAGS = 8
BARS = {"unicode": ("█", "▒", "░"), "ascii": ("#", "=", ".")}


@dataclass(frozen=True)
class Line:
    """A line and its style: title, device, heading, pool, stream, tag, alarm or note."""

    text: str
    style: str = "note"


@dataclass(frozen=True)
class Options:
    """How to show the pools.

    Attributes
    ----------
    sort : str
        One of `SORTS`.
    unfold : bool
        Show streams and tags under each pool.
    width : int
        Columns of the terminal; 0 for no limit.
    unicode : bool
        True if bars may be drawn with block characters.
    """

    sort: str = "reserved"
    unfold: bool = True
    width: int = 0
    unicode: bool = True


def count(value: float) -> str:
    """Return a rate or a count in few characters: 0, 0.3, 12, 4.5k, 1.2M."""
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.1f}{sign}"
    return f"{value:.1f}" if 0 < value < 10 and value % 1 else f"{value:.0f}"


def percent(part: float | None) -> str:
    """Return a share in percent, or a dash for None."""
    if part is None:
        return "-"
    return f"{part * 100:.1f}" if part < 0.9995 else "100"


def command_of(answer: Answer) -> str:
    """Return the process's command line, without the folder of its program."""
    program, space, rest = answer.command.partition(" ")
    return program.rsplit("/", 1)[-1] + space + rest


def short(text: str, width: int) -> str:
    """Return the text, cut to a width; a text that was cut ends with "~"."""
    return text if len(text) <= width else text[:max(0, width - 1)] + "~"


# ---- devices ----

def bar(parts: Sequence[tuple[int, str]], whole: int, width: int, rest: str) -> str:
    """Return a bar of characters for parts of a whole; a part that is not 0 has at least one character."""
    drawn, left = "", width
    for size, sign in parts:
        run = min(left, max(1 if size else 0, round(size / whole * width) if whole else 0))
        drawn += sign * run
        left -= run
    return drawn + rest * left


def device_lines(answers: Sequence[Answer], options: Options) -> Iterator[Line]:
    """Yield a line for each device: held by pools of all listed processes, held by others, free.

    For each process, the pools of other listed processes are "others".  So "others" is computed here, from the
    device's total.  A simulated device belongs to one process.
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
    """Return a sort key; its value is negated, so that the largest pool is first."""
    rates = answer.rates.get(pool["name"], PoolRates())
    value = {"reserved": pool["reserved"], "live": pool["allocated"], "alloc/s": rates.allocations,
             "slow/s": rates.slow, "OOMs": pool["ooms"], "pid": 0}[sort]
    return (-value, answer.pid, pool["name"])


@dataclass(frozen=True)
class Column:
    """A column of numbers of pools or streams: its heading, its width, and the function for its text.

    The function `cell` gets the data of a pool or a stream, and its rates, or None if there are no rates yet.
    """

    heading: str
    width: int
    cell: Callable[[dict[str, Any], Rates | None], str]


def streams_of(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the streams of a pool; for a stream, a list of itself."""
    streams: list[dict[str, Any]] = part.get("streams", [part])
    return streams


def limit_of(part: dict[str, Any]) -> str:
    """Return the text of a pool's limit; empty for a stream, which has none."""
    if "limit" not in part:
        return ""
    return readable(part["limit"]) if part["limit"] else "-"


def share_of(part: dict[str, Any], name: str) -> float:
    """Return the counter `name` as a share of all allocations since the start."""
    return total(streams_of(part), name) / max(1, served(streams_of(part)))


def unused(part: dict[str, Any]) -> str:
    """Return the share of reserved bytes that no block requested; bytes of sleeping blocks count as not requested."""
    awake = max(0, part["requested"] - part.get("asleep", 0))
    return percent(max(0.0, 1 - awake / part["reserved"])) + "%" if part["reserved"] else "-"


#: The columns to the right of a pool's or a stream's name.  docs/top.md says what each means.
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
#: The widths of the process id, the pool's name and its device, which precede the columns.
PID, NAME, DEVICE = 8, 14, 3
APART = "  "


def heading() -> str:
    """Return the line of headings."""
    named = (f"{'PID':>{PID}}", f"{'POOL':{NAME}}", f"{'DEV':>{DEVICE}}")
    return APART.join((*named, *(column.heading.rjust(column.width) for column in COLUMNS), "COMMAND"))


def cells(part: dict[str, Any], rates: Rates | None) -> str:
    """Return the columns of a pool or a stream; a text that is too long moves the next columns to the right."""
    return APART.join(column.cell(part, rates).rjust(column.width) for column in COLUMNS)


def pool_row(answer: Answer, pool: dict[str, Any]) -> str:
    """Return a pool's line."""
    named = (f"{answer.pid:>{PID}}", f"{short(pool['name'], NAME):{NAME}}", f"{pool['device']:>{DEVICE}}")
    return APART.join((*named, cells(pool, answer.rates.get(pool["name"]))))


def stream_row(stream: dict[str, Any], rates: Rates | None) -> str:
    """Return a stream's line under its pool, in the same columns."""
    name = stream_text(stream.get("name", ""), stream["stream"]).removeprefix("the ")
    if stream["kind"] != "stream":
        name += f" ({stream['kind']})"
    asleep = f"{readable(stream['asleep'])} asleep, " if stream.get("asleep") else ""
    return under(name, cells(stream, rates)) + (
        f"  {stream['live_blocks']:,} blocks, {asleep}largest free {readable(stream['largest_free'])}")


def under(name: str, text: str) -> str:
    """Return a line below a pool: a name under the pool's name, then the columns from LIVE on."""
    room = PID + NAME + DEVICE + len(APART)
    return APART + short(name, room).ljust(room) + APART + text


def tag_rows(pool: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the tags with the most bytes, the largest first."""
    held = sorted(((size, tag) for tag, size in pool["tags"].items() if size), reverse=True)
    for size, tag in held[:MOST_TAGS]:
        share = percent(size / max(1, pool["allocated"])) + "% of live"
        yield under(f"  # {tag or '(no tag)'}", readable(size).rjust(COLUMNS[0].width)) + f"  {share}"
    if len(held) > MOST_TAGS:
        yield f"    and {len(held) - MOST_TAGS} more tags"


def pool_lines(answer: Answer, pool: dict[str, Any], options: Options) -> Iterator[Line]:
    """Yield a pool's line and, if `options.unfold`, lines for its streams, its tags and its last failure."""
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


# ---- all lines ----

NOBODY = ("no process can be seen: start it with ACL_POOL_TOP=1, or let it call acl.serve_top(); "
          "both sides must run as the same user with the same ACL_POOL_TOP_DIR, if that is set")


def lines(answers: Sequence[Answer], options: Options, title: str = "") -> list[Line]:
    """Return all lines, cut to the width."""
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
