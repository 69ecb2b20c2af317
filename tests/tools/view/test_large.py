"""A file of a million events in the browser: the page opens, stays smooth, and its numbers are right.

The tests print the times, and compare them only with the times of a page of 30,000 events in the same browser.
docs/design-package.md has the times of a quiet machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.chromium import Browser
from support.histories import Truth, make_recording
from support.view_page import choose, cursor, figure, legend, search, window

from acl.tools import cli

EVENTS = 1_000_000
FRAMES = """
(async () => {
  const frame = () => new Promise(requestAnimationFrame), timeline = document.getElementById("timeline");
  const box = timeline.getBoundingClientRect(), took = [];
  for (let i = 0; i < 60; i++) {
    await frame();
    const began = performance.now();
    timeline.dispatchEvent(new ACTION);
    await frame();
    await new Promise((done) => setTimeout(done, 0));
    took.push(performance.now() - began);
  }
  return took.sort((a, b) => a - b);
})()
"""
ZOOM = ('WheelEvent("wheel", { deltaY: i < 30 ? -100 : 100, ctrlKey: true, clientX: box.left + box.width * 0.6, '
        'clientY: box.top + 50, cancelable: true, bubbles: true })')
STEP = 'KeyboardEvent("keydown", { key: "ArrowRight", shiftKey: true, bubbles: true })'


@pytest.fixture(scope="module")
def large(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Truth, Path]]:
    """Return the open page of a million events, with its facts and its file."""
    source = tmp_path_factory.mktemp("large") / "million.npz"
    truth = make_recording(source, EVENTS, seed=11)
    target = source.with_suffix(".html")
    assert cli.main(["view", "-q", str(source)]) == 0
    page = browser.page(1440, 1000)
    page.open(target, timeout=300)
    yield page, truth, target
    assert page.errors == []
    assert all(url.startswith(("file:", "blob:")) for url in page.requests)
    page.close()


READY = "performance.getEntriesByName('ready')[0].startTime"


def test_time_to_open_a_page_grows_about_in_proportion_to_its_events(large: Any, shown: Any) -> None:
    page, _, target = large
    ready, small = page.js(READY), shown.page.js(READY)
    print(f"\n{EVENTS:,} events, {target.stat().st_size / 1e6:.1f} MB: interactive after {ready:.0f} ms, "
          f"the small page after {small:.0f} ms")
    assert ready < 3 * small * EVENTS / len(shown.truth.rows)


def test_page_of_a_large_recording_shows_the_right_numbers(large: Any) -> None:
    page, truth, _ = large
    event, size = truth.peak()
    page.click("#toPeak")
    assert cursor(page) == event
    assert legend(page)["live"] == size
    assert figure(page, "allocations")[0] == f"{sum(row.op == 0 for row in truth.rows):,}"


@pytest.mark.parametrize(("name", "action"), [("zooming", ZOOM), ("moving the cursor", STEP)])
def test_frames_of_a_large_page_take_less_than_5_times_as_long_as_those_of_a_small_page(
        large: Any, shown: Any, name: str, action: str) -> None:
    """A frame's time depends on the visible part: with 33 times as many events it is less than 5 times as long."""
    page, _, _ = large
    times = []
    for each in (shown.page, page, shown.page, page):
        each.call("Page.bringToFront")          # a hidden page draws no frames
        choose(each, "axis", "events")
        times.append(each.js(FRAMES.replace("ACTION", action)))
    for what, took in (("small", times[2]), ("large", times[3])):
        print(f"\n{name}, {what}: median {took[30]:.0f} ms, 95 % under {took[57]:.0f} ms to the frame after the input")
    assert min(times[1][30], times[3][30]) < 5 * max(min(times[0][30], times[2][30]), 8)
    page.click("#zoomAll")
    assert window(page) == (0, EVENTS - 1)


def test_searching_half_a_million_is_quick(large: Any) -> None:
    page, truth, _ = large
    true = sum(row.op == 0 and row.tag == 6 and row.size >= 4 << 20 for row in truth.rows)
    assert search(page, "prefix >4MiB") == true


def test_no_peak_is_lost_between_pixels(large: Any) -> None:
    """The tallest column of the picture is the peak, although a pixel stands for 900 events."""
    page, truth, _ = large
    choose(page, "axis", "events")
    left, top, width, height = page.box("#timeline")
    event, _ = truth.peak()
    x = left + 76 + (width - 88) * (event + 0.5) / EVENTS
    seen = []
    for dx in (-1, 0, 1):
        page.hover(x + dx, top + height / 2)
        seen.append(page.js("document.querySelector('#tip strong').textContent").split(" · ")[0])
    assert f"event {event:,}" in seen
