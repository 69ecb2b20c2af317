"""`aclpool top` as lines of text: answers in, lines with a style each out.  Knows no terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from acl.inside._snapshot import readable
from acl.tools.top.sample import Answer, PoolRates, Rates, served, stream_key, total

__all__ = ["SORTS", "Line", "Options", "lines"]

#: What the pools can be sorted by: name, and its key with the largest first.
SORTS = ("reserved", "live", "alloc/s", "slow/s", "OOMs", "pid")
HEADINGS = ("PID", "POOL", "DEV", "LIVE", "PEAK", "RESERVED", "LIMIT", "UNUSED", "ALLOC/S", "HIT%", "FAST%",
            "SLOW/S", "OOMS")
WIDTHS = (8, 14, 3, 10, 10, 10, 10, 6, 8, 5, 5, 7, 5)
LEFT = {1}
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


def row(cells: Sequence[str]) -> str:
    """Cells under the headings; what is too long pushes the rest."""
    made = (cell.ljust(width) if i in LEFT else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True)))
    return "  ".join(made)


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


def speeds(streams: list[dict[str, Any]], rates: Rates | None) -> tuple[str, str, str, str]:
    """Allocations a second, HIT%, FAST%, slow calls a second; without rates the parts since the beginning."""
    if rates is None:
        every = max(1, served(streams))
        return "-", percent(total(streams, "hits") / every), percent(max(0.0, 1 - total(streams, "slow") / every)), "-"
    return count(rates.allocations), percent(rates.hit_rate), percent(rates.fast_rate), count(rates.slow)


def unused(part: dict[str, Any]) -> str:
    """The part of a pool's or a stream's reserved bytes that nobody asked for, or only to sleep."""
    awake = max(0, part["requested"] - part.get("asleep", 0))
    return percent(max(0.0, 1 - awake / part["reserved"])) + "%" if part["reserved"] else "-"


def pool_row(answer: Answer, pool: dict[str, Any]) -> str:
    """A pool's line."""
    return row((
        str(answer.pid), short(pool["name"], WIDTHS[1]), str(pool["device"]), readable(pool["allocated"]),
        readable(total(pool["streams"], "allocated_peak")), readable(pool["reserved"]),
        readable(pool["limit"]) if pool["limit"] else "-", unused(pool),
        *speeds(pool["streams"], answer.rates.get(pool["name"])), str(pool["ooms"]),
    ))


def stream_row(stream: dict[str, Any], rates: Rates | None) -> str:
    """A stream's line under its pool, in the same columns."""
    name = f"stream {stream['stream']:#x}" if stream["stream"] else "default stream"
    if stream["kind"] != "stream":
        name += f" ({stream['kind']})"
    cells = (readable(stream["allocated"]), readable(stream["allocated_peak"]), readable(stream["reserved"]),
             "", unused(stream), *speeds([stream], rates),
             str(stream["failures"]))
    asleep = f"{readable(stream['asleep'])} asleep, " if stream.get("asleep") else ""
    return under(name, cells) + (
        f"  {stream['live_blocks']:,} blocks, {asleep}largest free {readable(stream['largest_free'])}")


def under(name: str, cells: Sequence[str]) -> str:
    """A line below a pool: the name where the pool's own stands, then the columns from LIVE on."""
    room = sum(WIDTHS[:3]) + 4 - 2
    made = "  ".join(cell.rjust(width) for cell, width in zip(cells, WIDTHS[3:], strict=False))
    return f"  {short(name, room).ljust(room)}  {made}"


def tag_rows(pool: dict[str, Any]) -> Iterator[str]:
    """The tags that hold most, the largest first."""
    held = sorted(((size, tag) for tag, size in pool["tags"].items() if size), reverse=True)
    for size, tag in held[:MOST_TAGS]:
        share = percent(size / max(1, pool["allocated"])) + "% of live"
        yield under(f"  # {tag or '(no tag)'}", (readable(size),)) + f"  {share}"
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
        made.append(Line(row(HEADINGS) + "  COMMAND", "heading"))
    pairs = [(answer, pool) for answer in shown for pool in answer.pools]
    for answer, pool in sorted(pairs, key=lambda pair: sort_key(options.sort, *pair)):
        first, *rest = pool_lines(answer, pool, options)
        made += [Line(f"{first.text}  {command_of(answer)}", first.style), *rest]
    if idle:
        made.append(Line(f"{idle} process{'es' * (idle != 1)} without a pool", "note"))
    if options.width:
        made = [Line(short(line.text, options.width), line.style) for line in made]
    return made
