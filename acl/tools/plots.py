"""Draw small plots without a plotting package: a list of shapes, written as SVG.

`bars`, `lines` and `points` return a chart as shapes (`Box`, `Path`, `Text`) on a canvas of fixed size; `save` writes
it.  The SVG follows the reader's light or dark setting.  Styles, interaction and more than a dozen series are not
supported.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from xml.sax.saxutils import escape

from acl.inside._text import printable, write_replaced

__all__ = ["Area", "Box", "Drawing", "Path", "Text", "bars", "lines", "nice_steps", "points", "save"]

COLOURS = ("#3b6fb6", "#d9793a", "#4a9b5e", "#b5495b", "#7a62a8", "#8a6d4e", "#c069a5", "#6f7680",
           "#a3a03a", "#3f9fae", "#555555", "#c9a227")
INK, GRID, PAPER = "#222222", "#d5d5d5", "#ffffff"
LEGEND_ROW, LETTER = 16, 8      # pixels: height of a row of the legend, width of a letter


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True)
class Path:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: str
    width: float = 1.5


@dataclass(frozen=True)
class Area:
    """An area between two step functions: from `edges[i]` to `edges[i + 1]` it reaches from `low[i]` to `high[i]`."""

    edges: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    colour: str


@dataclass(frozen=True)
class Text:
    """A line of text.  `y` is its base line; `anchor` ("start", "middle" or "end") is the part of the text at `x`."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    colour: str = INK


@dataclass
class Drawing:
    """Shapes in the order in which they are painted."""

    width: int
    height: int
    shapes: list[Area | Box | Path | Text] = field(default_factory=list)


# ---- charts ----

def scale_text(value: float) -> str:
    """Return a number as a text for an axis: 1, 20, 3.5k, 2M."""
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:g}{sign}"
    return f"{value:g}"


def nice_steps(top: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers from 0 to `top`."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    return [step * i for i in range(int(top / step) + 1)]


def bars(title: str, groups: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Drawing:
    """Draw horizontal bars on a logarithmic axis, in groups; each value is written after its bar."""
    left, right, line = 190, 90, 18
    rows = sum(len(group) + 2 for _, group in groups)
    drawing = Drawing(860, 40 + rows * line + 20)
    drawing.shapes.append(Text(12, 22, title))
    most = max((value for _, group in groups for _, value in group), default=1.0)
    decades = max(1, math.ceil(math.log10(max(most, 10))))
    room = drawing.width - left - right

    def place(value: float) -> float:
        return max(0.0, math.log10(max(value, 1.0))) / decades * room

    for decade in range(decades + 1):
        x = left + place(10.0 ** decade)
        drawing.shapes.append(Path(((x, 36), (x, drawing.height - 24)), GRID, 1))
        drawing.shapes.append(Text(x, drawing.height - 8, scale_text(10.0 ** decade), "middle"))
    y = 40.0
    for heading, group in groups:
        drawing.shapes.append(Text(12, y + 13, heading))
        y += line
        for i, (name, value) in enumerate(group):
            drawing.shapes.append(Text(left - 8, y + 13, name, "end"))
            drawing.shapes.append(Box(left, y + 3, max(1.0, place(value)), line - 5, COLOURS[i % len(COLOURS)]))
            drawing.shapes.append(Text(left + max(1.0, place(value)) + 6, y + 13, f"{value:,.1f}"))
            y += line
        y += line
    return drawing


def lines(title: str, x_label: str, y_label: str,
          series: Sequence[tuple[str, Sequence[float], Sequence[float]]]) -> Drawing:
    """Draw lines over a common x axis, both axes from 0; each series is (name, xs, ys)."""
    names, rows = legend([name for name, _, _ in series], 80, 880)
    left, right, top, bottom = 80, 20, 50 + LEGEND_ROW * rows, 50
    drawing = Drawing(900, 356 + top)
    right_most = max((max(xs) for _, xs, _ in series if len(xs)), default=1.0) or 1.0
    highest = max((max(ys) for _, _, ys in series if len(ys)), default=1.0) or 1.0
    room_x, room_y = drawing.width - left - right, drawing.height - top - bottom

    def place(x: float, y: float) -> tuple[float, float]:
        return left + x / right_most * room_x, top + (1 - y / (highest * 1.05)) * room_y

    drawing.shapes.append(Text(12, 22, title))
    for value in nice_steps(highest):
        start, end = place(0, value), place(right_most, value)
        drawing.shapes += [Path((start, end), GRID, 1), Text(left - 8, start[1] + 4, scale_text(value), "end")]
    for value in nice_steps(right_most, 8):
        x = place(value, 0)[0]
        drawing.shapes.append(Text(x, drawing.height - bottom + 18, scale_text(value), "middle"))
    drawing.shapes.append(Text(left + room_x / 2, drawing.height - 10, x_label, "middle"))
    drawing.shapes.append(Text(12, top - 8, y_label))
    for i, ((name, xs, ys), (x, y)) in enumerate(zip(series, names, strict=True)):
        colour = COLOURS[i % len(COLOURS)]
        drawing.shapes.append(Path(tuple(place(a, b) for a, b in zip(xs, ys, strict=True)), colour))
        drawing.shapes += [Box(x, y, 12, 8, colour), Text(x + 18, y + 9, name)]
    return drawing


def legend(names: Sequence[str], left: float, right: float) -> tuple[list[tuple[float, float]], int]:
    """Return the position of each name of a legend, and the number of rows that the legend needs."""
    places: list[tuple[float, float]] = []
    x, row = left, 0
    for name in names:
        width = 34 + LETTER * len(name)
        if x + width > right and x > left:
            x, row = left, row + 1
        places.append((x, 34 + LEGEND_ROW * row))
        x += width
    return places, row + 1


def decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the range of a logarithmic axis that has all values: its first power of ten, and its number of decades.

    The power is returned as its exponent: (1, 2) is the range from 10 to 1000.
    """
    low = math.floor(math.log10(min(values, default=1.0)))
    return low, max(1, math.ceil(math.log10(max(values, default=10.0))) - low)


def points(title: str, x_label: str, y_label: str, named: Sequence[tuple[str, float, float]]) -> Drawing:
    """Draw named points, both axes logarithmic; a name that would cover another is drawn lower."""
    drawing = Drawing(1100, 520)
    left, right, top, bottom = 80, 200, 48, 50
    room_x, room_y = drawing.width - left - right, drawing.height - top - bottom
    low_x, steps_x = decades([x for _, x, _ in named])
    low_y, steps_y = decades([y for _, _, y in named])

    def place(x: float, y: float) -> tuple[float, float]:
        return (left + (math.log10(x) - low_x) / steps_x * room_x,
                top + (1 - (math.log10(y) - low_y) / steps_y) * room_y)

    drawing.shapes.append(Text(12, 22, title))
    for value in (digit * 10.0 ** (low_y + step) for step in range(steps_y) for digit in (1, 2, 5)):
        start = place(10.0**low_x, value)
        drawing.shapes += [Path((start, (left + room_x, start[1])), GRID, 1),
                           Text(left - 8, start[1] + 4, scale_text(value), "end")]
    for step in range(steps_x + 1):
        x = left + step / steps_x * room_x
        drawing.shapes.append(Text(x, drawing.height - bottom + 18, scale_text(10.0 ** (low_x + step)), "middle"))
    drawing.shapes += [Text(left + room_x / 2, drawing.height - 10, x_label, "middle"), Text(12, top - 8, y_label)]
    written: list[tuple[float, float, int]] = []
    for i, (name, across, up) in sorted(enumerate(named), key=lambda item: -item[1][2]):
        x, y = place(across, up)
        colour = COLOURS[i % len(COLOURS)]
        drawing.shapes.append(Box(x - 4, y - 4, 8, 8, colour))
        line = y + 4
        while any(abs(line - other) < LEGEND_ROW - 4 and x < at + LETTER * letters and at < x + LETTER * len(name)
                  for at, other, letters in written):
            line += 2
        written.append((x, line, len(name)))
        drawing.shapes.append(Text(x + 8, line, name, colour=colour))
    return drawing


# ---- SVG ----

STYLE = """\
<style>
text { font: 12px ui-monospace, Menlo, Consolas, monospace; }
@media (prefers-color-scheme: dark) {
 .paper { fill: #16181c; } .ink { fill: #e4e4e4; } .grid { stroke: #3a3d44; } .line { stroke: #e4e4e4; }
}
</style>"""


def svg_area(area: Area) -> str:
    steps = list(zip(area.edges, area.edges[1:], area.low, area.high, strict=False))
    there = [(x, high) for left, right, _, high in steps for x in (left, right)]
    back = [(x, low) for left, right, low, _ in reversed(steps) for x in (right, left)]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in there + back)
    return f'<polygon points="{points}" fill="{area.colour}"/>'


def svg_shape(shape: Area | Box | Path | Text) -> str:
    if isinstance(shape, Area):
        return svg_area(shape)
    if isinstance(shape, Box):
        return (f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" '
                f'height="{shape.height:.1f}" fill="{shape.colour}"/>')
    if isinstance(shape, Path):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        kind = {GRID: ' class="grid"', INK: ' class="line"'}.get(shape.colour, "")
        return (f'<polyline{kind} points="{points}" fill="none" stroke="{shape.colour}" '
                f'stroke-width="{shape.width}"/>')
    kind = ' class="ink"' if shape.colour == INK else ""
    return (f'<text{kind} x="{shape.x:.1f}" y="{shape.y:.1f}" text-anchor="{shape.anchor}" '
            f'fill="{shape.colour}">{escape(printable(shape.text))}</text>')


def svg(drawing: Drawing) -> str:
    """Return the drawing as an SVG document."""
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width} {drawing.height}" '
        f'width="{drawing.width}" height="{drawing.height}" role="img">', STYLE,
        f'<rect class="paper" width="{drawing.width}" height="{drawing.height}" fill="{PAPER}"/>',
        *map(svg_shape, drawing.shapes), "</svg>", ""])


def save(drawing: Drawing, file_name: str) -> None:
    """Write a drawing as SVG; an existing file is replaced when the new one is complete."""
    write_replaced(FilePath(file_name), svg(drawing))
