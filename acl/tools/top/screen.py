"""The screen of `aclpool top`: curses, one loop, one thread.

The processes are asked one after the other.  Each process that hangs delays the screen by a few seconds at most
(`sample.ASK_SECONDS`, for each step of the exchange).  A terminal that is too small shows what fits.
"""

from __future__ import annotations

import contextlib
import curses
import os
import time
from dataclasses import replace

from acl.tools.top.sample import Answer, ask_all, rates_between
from acl.tools.top.text import SORTS, Line, Options, lines

__all__ = ["Screen"]

SHORTEST, LONGEST = 0.1, 60.0


class Screen:
    """The screen's state, and its keys.

    Parameters
    ----------
    window : curses.window
        The whole terminal.
    options : Options
        The options to begin with.
    interval : float
        Seconds between two samples.
    pids : set of int or None
        Show only these processes, if not None.
    """

    def __init__(self, window: curses.window, options: Options, interval: float, pids: set[int] | None) -> None:
        self.window = window
        self.options = options
        self.interval = min(LONGEST, max(SHORTEST, interval))
        self.pids = pids
        self.paused = False
        self.first = 0                       # number of lines below the title that are scrolled off the screen
        self.answers: list[Answer] = []
        self.styles = self.make_styles()
        with contextlib.suppress(curses.error):
            curses.curs_set(0)

    @staticmethod
    def make_styles() -> dict[str, int]:
        """Return curses attributes by style: bold, dim, reverse, and colours if there are any and NO_COLOR is unset."""
        styles = {"title": curses.A_BOLD, "heading": curses.A_REVERSE, "pool": curses.A_BOLD, "device": curses.A_NORMAL,
                  "stream": curses.A_NORMAL, "tag": curses.A_DIM, "note": curses.A_DIM, "alarm": curses.A_BOLD}
        with contextlib.suppress(curses.error):
            if os.environ.get("NO_COLOR"):
                return styles
            curses.start_color()
            curses.use_default_colors()
            for number, (style, colour) in enumerate((("device", curses.COLOR_CYAN), ("alarm", curses.COLOR_RED)), 1):
                curses.init_pair(number, colour, -1)
                styles[style] |= curses.color_pair(number)
        return styles

    def loop(self) -> None:
        """Draw and handle keys until q is pressed."""
        self.answers = ask_all(self.pids)
        due = time.monotonic() + min(0.3, self.interval)   # the second sample soon, because rates need two samples
        while True:
            self.draw()
            left = due - time.monotonic()
            self.window.timeout(max(1, int((0.5 if self.paused else max(0.0, left)) * 1000)))
            key = self.window.getch()
            if key in (ord("q"), 27):
                return
            self.press(key)
            if not self.paused and time.monotonic() >= due:
                self.answers = rates_between(self.answers, ask_all(self.pids))
                due = time.monotonic() + self.interval

    def press(self, key: int) -> None:
        """Handle a key; keys without a meaning are ignored."""
        page = max(1, self.window.getmaxyx()[0] - 3)
        scroll = {curses.KEY_DOWN: 1, curses.KEY_UP: -1, curses.KEY_NPAGE: page, curses.KEY_PPAGE: -page,
                  curses.KEY_HOME: -1 << 30}.get(key)
        if scroll is not None:
            self.first = max(0, self.first + scroll)
        elif key == ord("s"):
            self.options = replace(self.options, sort=SORTS[(SORTS.index(self.options.sort) + 1) % len(SORTS)])
        elif key == ord("p"):
            self.paused = not self.paused
        elif key == ord("t"):
            self.options = replace(self.options, unfold=not self.options.unfold)
        elif key in (ord("+"), ord("=")):
            self.interval = max(SHORTEST, self.interval / 2)
        elif key == ord("-"):
            self.interval = min(LONGEST, self.interval * 2)

    def title(self) -> str:
        """Return the first line."""
        pools = sum(len(answer.pools) for answer in self.answers)
        state = "paused" if self.paused else f"every {self.interval:g} s"
        found = (f"{len(self.answers)} process{'es' * (len(self.answers) != 1)}, "
                 f"{pools} pool{'s' * (pools != 1)}")
        return (f"aclpool top  {time.strftime('%H:%M:%S')}  {found}  {state}  "
                f"by {self.options.sort}   q quit  s sort  p pause  t fold")

    def draw(self) -> None:
        """Draw the whole screen."""
        height, width = self.window.getmaxyx()
        made = lines(self.answers, replace(self.options, width=max(1, width - 1)), self.title())
        self.first = max(0, min(self.first, len(made) - height + 1))
        self.window.erase()
        for y, line in enumerate([made[0], *made[1 + self.first:]][:height]):
            self.put(y, line, width)
        self.window.refresh()

    def put(self, y: int, line: Line, width: int) -> None:
        """Draw one line in row `y`, cut to `width` - 1 characters.

        Errors of curses are ignored: it raises one when a text reaches the last cell of the screen.
        """
        text = line.text.ljust(width - 1) if line.style == "heading" else line.text
        with contextlib.suppress(curses.error):
            self.window.addstr(y, 0, text[:max(0, width - 1)], self.styles.get(line.style, curses.A_NORMAL))
