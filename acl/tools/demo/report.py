"""The report of `aclpool demo`: the table, and one page of HTML without further files.

The page follows the reader's light or dark setting.  It has inline drawings and no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from acl.inside._snapshot import readable

if TYPE_CHECKING:
    from acl.tools.demo.measure import Measured

__all__ = ["page", "table", "verdict"]

Row = dict[str, Any]
COLUMNS = ("", "p50 ms", "p99 ms", "device mallocs", "2nd half", "peak reserved", "waste", "callback", "in all",
           "wrong")
FOOT = ("2nd half: device mallocs in the second half of the requests; callback: one call of the allocator (median);",
        "in all: the time in all its calls together, waiting for the device included")
WIDE, HIGH, LEFT, BOTTOM, TOP = 720, 190, 58, 24, 8


def duration(ns: float) -> str:
    """Return nanoseconds as a text with a suitable unit."""
    for unit in ("ns", "us"):
        if ns < 1000:
            return f"{ns:.0f} {unit}" if unit == "ns" else f"{ns:.1f} {unit}"
        ns /= 1000
    return f"{ns:.1f} ms"


def cells(row: Row) -> list[str]:
    called = row["callbacks"] > 0
    return [
        row["what"], f"{row['latency_p50_ms']:.1f}", f"{row['latency_p99_ms']:.1f}",
        f"{row['device_mallocs']:,}", f"{row['device_mallocs_second_half']:,}",
        readable(row["peak_reserved"]), f"{row['waste']:.2f}x",
        duration(row["callback_p50_ns"]) if called else "-",
        f"{row['callback_ms']:.0f} ms" if called else "-", str(row["wrong_outputs"]),
    ]


def table(rows: Sequence[Row]) -> str:
    """Return a table with one line for each way."""
    lines = [list(COLUMNS), *(cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    made = ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(line, widths, strict=True))) for line in lines]
    return "\n".join([made[0], "-" * len(made[0]), *made[1:], *FOOT])


def verdict(rows: Sequence[Row], judge: str) -> str:
    """Return the result of the demo in two sentences; `judge` is the program that computed the right outputs."""
    first, last = rows[0], rows[-1]
    wrong = sum(row["wrong_outputs"] for row in rows)
    checked = f"all outputs of {len(rows)} x {last['requests']} requests agree with {judge}"
    if wrong:
        checked = f"{wrong} of {len(rows)} x {last['requests']} requests had wrong outputs"
    return (f"{checked}; the pool took device memory {last['device_mallocs']:,} times instead of "
            f"{first['device_mallocs']:,},\nand {readable(last['peak_reserved'])} of it instead of "
            f"{readable(first['peak_reserved'])}.")


# ---- the page -----------------------------------------------------------------------------------

STYLE = """\
:root { --ink: #1d2430; --soft: #5c6675; --line: #d9dee6; --paper: #ffffff; --box: #f5f7fa;
        --reserved: #3b6fb6; --asked: #d9793a; --good: #2f7d4a; --bad: #b3363f; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #9aa5b4; --line: #343c48; --paper: #14181e; --box: #1c222a;
          --reserved: #6fa3e8; --asked: #f0a169; --good: #6cc58a; --bad: #ef7e86; } }
body { margin: 2rem auto; max-width: 58rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
p.soft, figcaption, li { color: var(--soft); font-size: .9rem; } p.good { color: var(--good); }
p.bad { color: var(--bad); font-weight: 600; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; width: 100%; }
th, td { padding: .35rem .45rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap;
         font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
tr.ours td { background: var(--box); font-weight: 600; }
figure { margin: .4rem 0 0; } svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; } svg .grid { stroke: var(--line); }
svg .reserved { fill: none; stroke: var(--reserved); stroke-width: 1.8; }
svg .area { fill: var(--reserved); opacity: .14; }
svg .asked { fill: none; stroke: var(--asked); stroke-width: 1.2; }
.key i { display: inline-block; width: 1.4em; height: .25em; margin: 0 .4em .2em 0; vertical-align: middle; }
.key span { margin-right: 1.4em; }
"""


def steps(top: float) -> list[int]:
    """Return at most six numbers of MiB from 0 to `top`, for an axis: multiples of a power of two."""
    step = 1
    while top / step > 5:
        step *= 2
    return list(range(0, int(top) + 1, step))


def path(values: Sequence[float], x: Any, y: Any) -> str:
    return " ".join(f"{'L' if i else 'M'}{x(i):.1f} {y(value):.1f}" for i, value in enumerate(values))


def timeline(one: Measured, top: float) -> str:
    """Return a plot of reserved and requested bytes over the requests, as SVG; `top` in MiB is the end of the axis."""
    count = max(len(one.reserved) - 1, 1)

    def x(i: float) -> float:
        return LEFT + (WIDE - LEFT - 8) * i / count

    def y(mib: float) -> float:
        return TOP + (HIGH - TOP - BOTTOM) * (1 - mib / top)

    reserved, asked = ([value / 2**20 for value in values] for values in (one.reserved, one.requested))
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDE - 8}" y1="{y(m):.1f}" y2="{y(m):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y(m) + 4:.1f}" text-anchor="end">{m} MiB</text>' for m in steps(top))
    marks = "".join(
        f'<text x="{x(n * count / 4):.1f}" y="{HIGH - 6}" text-anchor="{anchor}">'
        f"{first}{round(n * count / 4) + 1}</text>"
        for n, (anchor, first) in enumerate([("start", "request "), *[("middle", "")] * 3, ("end", "")]))
    line = path(reserved, x, y)
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="Device memory over the requests">{grid}{marks}'
        f'<path class="area" d="{line} L{x(len(reserved) - 1):.1f} {y(0):.1f} L{x(0):.1f} {y(0):.1f} Z"/>'
        f'<path class="asked" d="{path(asked, x, y)}"/><path class="reserved" d="{line}"/></svg>')


def html_table(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    body = "".join(
        f'<tr{" class=ours" if row["way"] == "pool" else ""}>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells(row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


NOTES = """\
<ul>
<li><b>p50, p99 ms</b>: from a request to its results on the host. The simulator computes on this machine's
processor, and driver calls that get or return device memory take about as long as on a card.</li>
<li><b>device mallocs</b>: calls that took memory from the device; <b>2nd half</b>: those of them in the second
half of the requests.</li>
<li><b>peak reserved</b>: most device memory taken beside the models' weights, by the simulator's own books;
<b>waste</b>: that, over the most that was asked for at a time (the sum of the streams' own peaks).</li>
<li><b>callback</b>: median time of one call of the allocator's functions as ACL sees it; <b>in all</b>: the time
in all of them, waiting for the device included. With no allocator registered ACL uses one of its own, which
calls nobody.</li>
</ul>"""


def page(about: Row, found: Sequence[Measured]) -> str:
    """Return the report as HTML."""
    from acl.tools.demo.measure import WAYS

    rows = [one.summary() for one in found]
    top = max(max(one.reserved, default=1) for one in found) / 2**20 * 1.05
    wrong = any(one.wrong for one in found)
    charts = "".join(
        f"<h2>{escape(WAYS[one.way])}</h2><figure>{timeline(one, top)}<figcaption>peak "
        f"{readable(one.reserved_peak)} for {readable(one.requested_peak)} asked for</figcaption></figure>"
        for one in found)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>aclpool demo</title><style>
{STYLE}</style></head><body>
<h1>Dynamic-shape inference, three ways</h1>
<p class="soft">{about["requests"]} requests in {about["shapes"]} shapes to a transformer encoder and a
detector-like CNN, on {about["streams"]} streams of the simulated {escape(about["soc"])}.
aclpool {escape(about["version"])}, {escape(about["time"])}, seed {about["seed"]}.</p>
<p class="{"bad" if wrong else "good"}">{escape(verdict(rows, about["checked_against"]))}</p>
{html_table(rows)}
<h2>Device memory over the requests</h2>
<p class="key soft"><span><i style="background:var(--reserved)"></i>taken from the device</span>
<span><i style="background:var(--asked)"></i>asked for (inputs, outputs and what lies between)</span></p>
{charts}
<h2>What the columns mean</h2>
{NOTES}
</body></html>
"""
