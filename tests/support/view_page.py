"""Reads the contents of an `aclpool view` page from its elements, and operates the page as a user does."""

from __future__ import annotations

import re
from typing import Any

from support.chromium import Page

__all__ = ["choose", "cursor", "details", "figure", "go_to", "legend", "rows", "search", "tip", "window"]


def number(text: str) -> int:
    """Return the whole number in a text with thousands separators."""
    return int(re.sub(r"[^\d]", "", text))


def legend(page: Page) -> dict[str, int]:
    """Return the legend as a dict from name to bytes at the cursor."""
    found = page.js("[...document.querySelectorAll('.legendItem')].map((item) => "
                    "[item.querySelector('span').textContent, item.querySelector('b').title])")
    return {name: number(title) for name, title in found}


def cursor(page: Page) -> int:
    """Return the number of the event at the cursor."""
    text = page.js("document.querySelector('.legendWhen').textContent")
    return number(text.split("·")[0])


def window(page: Page) -> tuple[int, int]:
    """Return the first and the last event that the timeline shows."""
    label = page.js("document.getElementById('timeline').getAttribute('aria-label')")
    low, high = re.findall(r"event ([\d,]+)", label)
    return number(low), number(high)


def figure(page: Page, key: str) -> list[str]:
    """Return the texts of a figure: its value and its note."""
    return list(page.js(f"[...document.querySelectorAll('[data-figure={key}] dd')].map((one) => one.textContent)"))


def tip(page: Page) -> dict[str, str] | None:
    """Return the lines of the tooltip by label; its heading has the label "".  None if it is hidden."""
    lines = page.js(
        "(() => { const tip = document.getElementById('tip'); return tip.hidden ? null : "
        "[['', tip.querySelector('strong').textContent], ...[...tip.querySelectorAll('.tipLine')].map((line) => "
        "[line.querySelector('span').textContent, line.querySelector('b').textContent])]; })()")
    return dict(lines) if lines else None


def details(page: Page) -> dict[str, str]:
    """Return the facts about the selected allocation, by label."""
    return dict(page.js("[...document.querySelectorAll('#details dt')].map((one) => "
                        "[one.textContent, one.nextElementSibling.textContent])"))


def rows(page: Page) -> list[list[str]]:
    """Return the rows of the list that the page shows now, as lists of the cells' texts."""
    return list(page.js("[...document.querySelectorAll('.listRow')].map((row) => "
                        "[...row.children].map((cell) => cell.textContent))"))


def choose(page: Page, group: str, value: str) -> None:
    """Click a radio button."""
    page.click(f"#{group} [data-value={value}]")


def search(page: Page, text: str) -> int:
    """Type into the search field. Return the number of allocations found."""
    page.js("(() => { const field = document.getElementById('search'); field.focus(); field.select(); })()")
    before: Any = page.js("performance.now()")
    if text:
        page.type(text)
    else:
        page.call("Input.dispatchKeyEvent", type="keyDown", key="Delete", windowsVirtualKeyCode=46)
    page.wait(f"performance.now() > {before} + 300")
    page.settle()
    return number(page.js("document.getElementById('listCount').textContent").split(" of ")[0])


def go_to(page: Page, event: int) -> None:
    """Set the cursor to an event, with keys only."""
    page.js("document.getElementById('timeline').focus()")
    choose(page, "axis", "events")
    page.js("document.getElementById('timeline').focus()")
    page.key("Home")
    steps = page.js("(() => { let count = 0; const timeline = document.getElementById('timeline');"
                    f" for (; count < {event}; count++) timeline.dispatchEvent(new KeyboardEvent('keydown', "
                    "{key: 'ArrowRight', bubbles: true})); return count; })()")
    page.settle()
    assert steps == event
