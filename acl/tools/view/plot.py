"""Draw the plot of `aclpool view`: live bytes stacked over time, reserved bytes, and the composition of the peak.

It is for reports and other places that cannot show HTML.  It is drawn by `acl.tools.plots`, without a plotting
package.  As on the page, each column shows the event with the most live bytes, so that no peak is lost.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from acl.inside._snapshot import readable
from acl.tools.plots import GRID, INK, Area, Box, Drawing, Path, Text, nice_steps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from acl.tools.view.history import History

__all__ = ["COLOURS", "draw", "groups_of"]

COLOURS = ("#3273bb", "#e29c3b", "#1f8a70", "#c67fb2", "#7fc3ea", "#b4481f", "#dccd56", "#5b4b9a", "#7a5a38", "#3d4650")
REST = "#aaaab2"
ALARM = "#b4281f"
OWN = 9        # number of groups with their own colour; if there is only one more group, it has its own colour too
CLASSES = (("up to 64 KiB", 1 << 16), ("up to 1 MiB", 1 << 20), ("up to 4 MiB", 1 << 22), ("up to 16 MiB", 1 << 24),
           ("up to 32 MiB", 1 << 25), ("up to 64 MiB", 1 << 26), ("up to 128 MiB", 1 << 27), ("larger", 1 << 62))
COLUMNS = 600
LEFT, TOP, WIDE, HIGH = 84, 56, 620, 330
MIB = 1 << 20


def live_of(history: History, mask: NDArray[Any]) -> NDArray[Any]:
    """Return the live bytes of the masked blocks after each event."""
    import numpy as np

    change = np.zeros(history.events + 1, np.int64)
    np.add.at(change, history.start[mask], history.size[mask].astype(np.int64))
    np.add.at(change, history.end[mask], -history.size[mask].astype(np.int64))
    return np.cumsum(change[:history.events])


def mean_life(history: History, mask: NDArray[Any]) -> float:
    """Return for how many events a byte of the masked blocks is live on average."""
    size = history.size[mask].astype(float)
    return float((size * (history.end[mask] - history.start[mask])).sum() / max(1.0, size.sum()))


def groups_of(history: History, by: str) -> list[tuple[str, NDArray[Any]]]:
    """Return names and masks of the groups, from the bottom of the plot up.

    Sizes are in rising order.  Tags and streams are ordered by `mean_life`, so that the blocks that live longest, such
    as weights, are at the bottom.  If there are too many of them, those with the smallest peaks form one group at the
    top.
    """
    import numpy as np

    if by == "size":
        classes = np.searchsorted([most for _, most in CLASSES], history.size)
        groups = [(name, classes == i) for i, (name, _) in enumerate(CLASSES)]
        return [(name, mask) for name, mask in groups if mask.any()]
    names, values = (history.tags, history.tag) if by == "tag" else (history.streams, history.stream)
    used = np.unique(values).tolist()
    used.sort(key=lambda value: -int(live_of(history, values == value).max(initial=0)))
    own = used[:OWN] if len(used) > OWN + 1 else used
    own.sort(key=lambda value: -mean_life(history, values == value))
    groups = [(names[value], values == value) for value in own]
    if len(own) < len(used):
        groups.append((f"{len(used) - len(own)} others", ~np.isin(values, own)))
    return groups


def chosen_dimension(history: History) -> str:
    """Return the dimension by which blocks are grouped: tag if there are several tags, else stream, else size."""
    import numpy as np

    for by in ("tag", "stream"):
        if len(np.unique(getattr(history, by))) > 1:
            return by
    return "size"


def column_moments(total: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the edges of the plot's columns, and for each column the event with the most live bytes."""
    import numpy as np

    edges = np.unique(np.linspace(0, len(total), min(COLUMNS, len(total)) + 1).astype(np.int64))
    return edges, np.array([low + int(np.argmax(total[low:high]))
                            for low, high in pairwise(edges.tolist())])


def reserved_steps(history: History) -> NDArray[Any]:
    """Return the reserved bytes after each event."""
    import numpy as np

    curve = np.zeros(history.events, np.int64)
    change = np.diff(history.reserved, prepend=0)
    np.add.at(curve, history.reserved_at, change)
    return np.cumsum(curve)


def draw(history: History, by: str | None = None) -> Drawing:
    """Return the drawing; `by` is tag, stream or size, or None for the result of `chosen_dimension`.

    The pool's limit is drawn only if it is at most twice the highest curve.
    """
    import numpy as np

    by = by or chosen_dimension(history)
    total = history.live()
    edges, moments = column_moments(total)
    peak = int(np.argmax(total))
    reserved = reserved_steps(history) if len(history.reserved) else np.zeros(0, np.int64)
    most = max(1, int(total.max()), int(reserved.max(initial=0)))
    limit = history.limit if history.limit <= 2 * most else 0
    highest = max(most, limit) * 1.04
    drawing = Drawing(1000, 440)
    axes(drawing, history, highest)
    xs = tuple((LEFT + edges / max(1, history.events) * WIDE).tolist())
    low = np.zeros(len(moments))
    rows: list[tuple[str, int, str]] = []
    for number, (name, mask) in enumerate(groups_of(history, by)):
        colour = REST if number >= len(COLOURS) - 1 and name.endswith(" others") else COLOURS[number % len(COLOURS)]
        curve = live_of(history, mask)
        high = low + curve[moments]
        drawing.shapes.append(Area(xs, places(low, highest), places(high, highest), colour))
        rows.append((name, int(curve[peak]), colour))
        low = high
    if len(reserved):
        tops = [int(reserved[first:last].max()) for first, last in pairwise(edges.tolist())]
        outline(drawing, xs, places(np.array(tops), highest))
    if limit:
        y = TOP + HIGH - limit / highest * HIGH
        drawing.shapes += [Path(((LEFT, y), (LEFT + WIDE, y)), ALARM, 1),
                           Text(LEFT + WIDE, y - 4, f"limit {readable(limit)}", "end")]
    legend(drawing, history, rows, int(total[peak]), peak, int(reserved.max(initial=0)))
    return drawing


def places(values: NDArray[Any], highest: float) -> tuple[float, ...]:
    """Return the y coordinates of values."""
    listed: list[float] = (TOP + HIGH - values / highest * HIGH).tolist()
    return tuple(listed)


def outline(drawing: Drawing, xs: tuple[float, ...], ys: tuple[float, ...]) -> None:
    """Add a line that is a step function."""
    points = [point for left, right, y in zip(xs, xs[1:], ys, strict=False) for point in ((left, y), (right, y))]
    drawing.shapes.append(Path(tuple(points), INK, 1.5))


def axes(drawing: Drawing, history: History, highest: float) -> None:
    """Add the title, the axis of bytes on the left, and the axis of events below."""
    unit, name = (1 << 30, "GiB") if highest >= 4 << 30 else (MIB, "MiB")
    drawing.shapes += [Text(16, 24, f"{history.name}: memory over time"), Text(LEFT - 8, TOP - 12, name, "end")]
    for value in nice_steps(highest / unit):
        y = TOP + HIGH - value * unit / highest * HIGH
        drawing.shapes += [Path(((LEFT, y), (LEFT + WIDE, y)), GRID, 1), Text(LEFT - 8, y + 4, f"{value:,g}", "end")]
    for value in nice_steps(history.events, 6):
        x = LEFT + value / max(1, history.events) * WIDE
        drawing.shapes.append(Text(x, TOP + HIGH + 20, f"{value:,.0f}", "middle"))
    drawing.shapes.append(Text(LEFT + WIDE / 2, TOP + HIGH + 42, "events", "middle"))


def legend(drawing: Drawing, history: History, rows: list[tuple[str, int, str]], live: int, peak: int,
           reserved: int) -> None:
    """Add each group's bytes at the peak, in the order of the stack from its top, and the meaning of the black line."""
    x, y = LEFT + WIDE + 28, TOP + 4.0
    drawing.shapes.append(Text(x, y, f"At the peak, event {peak:,}"))
    for name, size, colour in reversed(rows):
        y += 22
        shown = name if len(name) <= 20 else name[:19] + "."
        drawing.shapes += [Box(x, y - 9, 11, 11, colour), Text(x + 19, y, shown),
                           Text(drawing.width - 16, y, readable(size), "end")]
    drawing.shapes += [Text(x + 19, y + 26, "live"), Text(drawing.width - 16, y + 26, readable(live), "end")]
    if reserved:
        drawing.shapes += [Path(((x, y + 44), (x + 11, y + 44)), INK, 1.5), Text(x + 19, y + 48, "reserved, most"),
                           Text(drawing.width - 16, y + 48, readable(reserved), "end")]
        if history.replayed:
            drawing.shapes.append(Text(x + 19, y + 66, "(by aclpool, in a replay)"))
