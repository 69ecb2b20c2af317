"""The page of `aclpool view` without a mouse: tab order, focus rings, keys, announcements for a screen reader."""

from __future__ import annotations

from typing import Any

from support.chromium import SHIFT
from support.view_page import cursor, details, go_to, rows, window

FOCUS = "document.activeElement.id || document.activeElement.dataset.value || document.activeElement.className"


def focus(page: Any, selector: str) -> None:
    page.js(f"document.querySelector('{selector}').focus()")


def test_tab_reaches_every_part_in_reading_order(shown: Any) -> None:
    page = shown.page
    order = []
    for _ in range(80):
        page.key("Tab")
        order.append(page.js(FOCUS))
        if order[-1] == "list":
            break
    parts = ["skip", "tag", "time", "theme", "toPeak", "zoomIn", "zoomOut", "zoomAll", "toLive", "timeline",
             "overview",
             "legendItem", "addresses", "cursor", "blockLine", "all", "search", "list"]
    places = [order.index(part) for part in parts]
    assert places == sorted(places), list(zip(parts, places, strict=True))


def test_focused_element_of_the_page_has_a_visible_outline(shown: Any) -> None:
    page = shown.page
    for _ in range(10):
        page.key("Tab")
    assert page.js(FOCUS) == "timeline"
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert float(page.js("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")) >= 2


def test_arrows_move_the_cursor_by_one_event(shown: Any) -> None:
    page = shown.page
    go_to(page, 5)
    page.key("ArrowRight")
    assert cursor(page) == 6
    page.key("ArrowLeft")
    page.key("ArrowLeft")
    assert cursor(page) == 4
    page.key("ArrowRight", SHIFT)
    assert cursor(page) == 604
    page.key("End")
    assert cursor(page) == len(shown.truth.rows) - 1
    page.key("ArrowRight")
    assert cursor(page) == len(shown.truth.rows) - 1
    page.key("p")
    assert cursor(page) == shown.truth.peak()[0]


def test_keys_zoom_around_the_cursor_and_follow_it(shown: Any) -> None:
    page = shown.page
    go_to(page, 3000)
    for _ in range(6):
        page.key("+")
    low, high = window(page)
    assert low < 3000 < high and high - low < 600
    page.key("End")
    assert window(page)[1] == len(shown.truth.rows) - 1
    page.key("0")
    assert window(page) == (0, len(shown.truth.rows) - 1)


def test_zoomed_in_to_single_events(shown: Any) -> None:
    page = shown.page
    go_to(page, 3000)
    for _ in range(20):
        page.key("+")
    low, high = window(page)
    assert high - low == 8 and low <= 3000 <= high


def test_bracket_keys_move_the_cursor_to_marks(shown: Any) -> None:
    page = shown.page
    go_to(page, 19_000)
    seen = []
    for _ in range(40):
        page.key("]")
        seen.append(cursor(page))
        if seen[-1] >= 20_000:
            break
    assert 20_000 in seen and seen == sorted(seen)


def test_event_at_the_cursor_is_announced_to_screen_readers(shown: Any) -> None:
    page = shown.page
    go_to(page, 0)
    said = page.wait("document.getElementById('status').textContent")
    row = shown.truth.rows[0]
    assert said.startswith("event 0") and f"{row.size / (1 << 20):.1f} MiB live" in said and "weights" in said


def test_arrows_on_the_map_go_from_block_to_block(shown: Any) -> None:
    page = shown.page
    live = sorted(shown.truth.live_rows(shown.truth.peak()[0]), key=lambda row: row.address)
    focus(page, "#addresses")
    for row in live[:4]:
        page.key("ArrowRight")
        assert details(page)["Address"] == hex(row.address)
    page.key("End")
    assert details(page)["Address"] == hex(live[-1].address)
    page.key("ArrowRight")
    page.key("ArrowLeft")
    assert details(page)["Address"] == hex(live[-2].address)


def test_radio_groups_move_with_arrows(shown: Any) -> None:
    page = shown.page
    focus(page, "#stackBy [data-value=tag]")
    page.key("ArrowRight")
    assert page.js("document.querySelector('#stackBy [aria-checked=true]').dataset.value") == "stream"
    assert page.js(FOCUS) == "stream"
    page.key("ArrowLeft")
    page.key("ArrowLeft")
    assert page.js("document.querySelector('#stackBy [aria-checked=true]').dataset.value") == "size"


def test_the_list_is_walked_with_arrows(shown: Any) -> None:
    page = shown.page
    order = [row[0] for row in rows(page)]
    focus(page, "#list")
    page.key("ArrowDown")
    page.key("ArrowDown")
    assert page.js("document.querySelector('[aria-selected=true]').firstChild.textContent") == order[1]
    assert page.js("document.getElementById('list').getAttribute('aria-activedescendant')") == "row1"
    page.key("End")
    assert page.js("document.querySelector('[aria-selected=true]') !== null")
    page.key("Home")
    page.key("Enter")
    block = next(row for row in shown.truth.rows if f"#{row.id}" == order[0])
    assert cursor(page) == shown.truth.rows.index(block)


def test_everything_that_can_be_used_has_a_name(shown: Any) -> None:
    nameless = shown.page.js(
        "[...document.querySelectorAll('button, input, [tabindex=\"0\"], [role=radiogroup]')]"
        ".filter((one) => !one.hidden && "
        "!(one.textContent.trim() || one.getAttribute('aria-label') || one.getAttribute('aria-labelledby')))"
        ".map((one) => one.outerHTML)")
    assert nameless == []
