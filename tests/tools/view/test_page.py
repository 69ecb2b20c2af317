"""The page of `aclpool view` in a browser: its numbers compared with counts from the file, and the mouse."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from support.chromium import CTRL, SHIFT, Browser
from support.histories import TAGS
from support.view_page import choose, cursor, details, figure, go_to, legend, number, rows, search, tip, window

import acl
from acl.tools import cli

MIB = 1 << 20
NAMES = ["no tag", *TAGS[1:]]


def plot_place(page: Any, part: float, selector: str = "#timeline") -> tuple[float, float]:
    """Return the point of a chart at the fraction `part` of its plot's width."""
    left, top, width, height = page.box(selector)
    return left + 76 + (width - 88) * part, top + height / 2


# ---- numbers ----

def test_page_shows_the_peak_of_the_file(shown: Any) -> None:
    event, size = shown.truth.peak()
    assert cursor(shown.page) == event
    assert legend(shown.page)["live"] == size
    assert figure(shown.page, "peak")[0] == f"{size / (1 << 30):.2f} GiB"


@pytest.mark.parametrize("event", [0, 1, 63, 64, 65, 1499, 12_000])
def test_bytes_by_tag_at_a_moment(shown: Any, event: int) -> None:
    go_to(shown.page, event)
    assert cursor(shown.page) == event
    said = legend(shown.page)
    true = {NAMES[tag]: size for tag, size in shown.truth.live_by("tag", event).items()}
    assert said.pop("live") == sum(true.values())
    said.pop("reserved")
    assert {name: size for name, size in said.items() if size} == true


def test_bytes_by_stream_after_the_switch(shown: Any) -> None:
    choose(shown.page, "stackBy", "stream")
    said = legend(shown.page)
    true = shown.truth.live_by("stream", shown.truth.peak()[0])
    assert said["default stream"] == true[0]
    assert said["stream 1 · 0x7f00"] == true.get(1, 0)


def test_bytes_by_size_add_up(shown: Any) -> None:
    choose(shown.page, "stackBy", "size")
    said = legend(shown.page)
    live = shown.truth.live_rows(shown.truth.peak()[0])
    assert said["up to 64 KiB"] == sum(row.size for row in live if row.size <= 65536)
    assert said["up to 64 MiB"] == sum(row.size for row in live if 32 * MIB < row.size <= 64 * MIB)


def test_composition_at_the_peak_while_the_cursor_is_elsewhere(shown: Any) -> None:
    go_to(shown.page, 100)
    choose(shown.page, "moment", "peak")
    event, size = shown.truth.peak()
    bars = shown.page.js("[...document.querySelectorAll('.bars tr')].map((row) => [row.cells[0].textContent, "
                         "row.cells[3].textContent])")
    true = shown.truth.live_by("tag", event)
    assert [name for name, _ in bars] == [NAMES[tag] for tag in sorted(true, key=lambda tag: -true[tag])]
    for name, part in bars:
        assert float(part.split()[0]) == pytest.approx(100 * true[NAMES.index(name)] / size, rel=0.01, abs=0.005)


def test_page_lists_the_blocks_that_were_not_freed(shown: Any) -> None:
    kept = shown.truth.live_rows(len(shown.truth.rows) - 1)
    assert figure(shown.page, "kept")[1] == f"{len(kept)} blocks"
    choose(shown.page, "scope", "kept")
    assert number(shown.page.js("document.getElementById('listCount').textContent").split(" of ")[0]) == len(kept)


# ---- the timeline ----

def test_hovering_tells_the_moment_that_is_drawn(shown: Any) -> None:
    page = shown.page
    choose(page, "axis", "events")
    for part in (0.1, 0.5, 0.93):
        page.hover(*plot_place(page, part))
        said = tip(page)
        assert said is not None
        event = number(said[""].split("·")[0])
        assert abs(event - part * len(shown.truth.rows)) < 60
        live = sum(shown.truth.live_by("tag", event).values())
        assert said["live"] in (f"{live / (1 << 30):.2f} GiB", f"{live / MIB:.0f} MiB")


def test_dragging_zooms_and_all_shows_everything(shown: Any) -> None:
    page = shown.page
    choose(page, "axis", "events")
    (x0, y), (x1, _) = plot_place(page, 0.25), plot_place(page, 0.5)
    page.drag(x0, y, x1, y)
    low, high = window(page)
    assert low == pytest.approx(7500, abs=60) and high == pytest.approx(15_000, abs=60)
    page.click("#zoomAll")
    assert window(page) == (0, len(shown.truth.rows) - 1)


def test_dragging_with_shift_moves_the_plot(shown: Any) -> None:
    page = shown.page
    choose(page, "axis", "events")
    (x0, y), (x1, _) = plot_place(page, 0.4), plot_place(page, 0.6)
    page.drag(x0, y, x1, y)
    before = window(page)
    page.drag(x1, y, x0, y, modifiers=SHIFT)
    after = window(page)
    assert after[0] - before[0] == pytest.approx(0.2 * (before[1] - before[0]), rel=0.05)
    assert after[1] - after[0] == pytest.approx(before[1] - before[0], abs=2)


def test_the_wheel_zooms_with_control_only(shown: Any) -> None:
    page = shown.page
    choose(page, "axis", "events")
    x, y = plot_place(page, 0.5)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120)
    page.settle()
    assert window(page) == (0, len(shown.truth.rows) - 1)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240, modifiers=CTRL)
    page.settle()
    low, high = window(page)
    assert high - low < len(shown.truth.rows) * 0.9
    assert (low + high) / 2 == pytest.approx(len(shown.truth.rows) / 2, rel=0.03)


def test_a_click_sets_the_cursor_everywhere(shown: Any) -> None:
    page = shown.page
    choose(page, "axis", "events")
    page.click_at(*plot_place(page, 0.8))
    event = cursor(page)
    assert event == pytest.approx(24_000, abs=60)
    assert f"event {event:,}" in page.js("document.getElementById('addressesWhen').textContent")
    assert f"event {event:,}" in page.js("document.getElementById('compositionWhen').textContent")


def test_the_overview_moves_the_window(shown: Any) -> None:
    page = shown.page
    choose(page, "axis", "events")
    (x0, y), (x1, _) = plot_place(page, 0.25, "#overview"), plot_place(page, 0.5, "#overview")
    page.drag(x0, y, x1, y)
    low, high = window(page)
    assert low == pytest.approx(7500, abs=60) and high == pytest.approx(15_000, abs=60)


def test_time_and_events_are_two_axes(shown: Any) -> None:
    page = shown.page
    end = shown.truth.rows[-1].time
    (x0, y), (x1, _) = plot_place(page, 0.5), plot_place(page, 0.75)
    page.drag(x0, y, x1, y)
    low, high = window(page)
    assert shown.truth.rows[low].time == pytest.approx(end * 0.5, rel=0.02)
    assert shown.truth.rows[high].time == pytest.approx(end * 0.75, rel=0.02)


# ---- the address space ----

def map_rows(path: Path) -> tuple[list[int], int]:
    """Return the start of each row of the map and the length of a row, a power of two that gives at most 20 rows."""
    import numpy as np

    data = np.load(path)
    maps = data["event_kind"] == 0
    spans = sorted({(low, low + size) for low, size in zip(
        data["event_address"][maps].tolist(), data["event_size"][maps].tolist(), strict=True)})

    def stretches(gap: int) -> list[list[int]]:
        found: list[list[int]] = []
        for low, high in spans:
            if found and low <= found[-1][1] + gap:
                found[-1][1] = max(found[-1][1], high)
            else:
                found.append([low, high])
        return found

    length = 1 << int(np.ceil(np.log2(sum(high - low for low, high in stretches(0)) / 20)))
    return [at for low, high in stretches(length) for at in range(low, high, length)], length


def test_blocks_lie_where_their_addresses_are(shown: Any, small: Any) -> None:
    page = shown.page
    left, top, width, _ = page.box("#addresses")
    bases, length = map_rows(small[0].with_suffix(".npz"))
    seen = 0
    for row in shown.truth.live_rows(shown.truth.peak()[0])[::5]:
        middle = row.address + row.size // 2
        number_of_row = max(i for i, base in enumerate(bases) if base <= middle)
        breaks = sum(base - before != length for before, base in pairwise(bases[:number_of_row + 1]))
        if row.size / length * width < 2:
            continue
        page.mouse("mouseMoved", left + 128 + (middle - bases[number_of_row]) / length * (width - 132),
                   top + 2 + 18 * number_of_row + 9 * breaks + 7)
        said = tip(page)
        assert said is not None and said.get("at") == hex(row.address)
        seen += 1
    assert seen > 8


def mapped_at(path: Path, event: int) -> list[tuple[int, int]]:
    """Return the ranges mapped after an event, from the recording's own arrays."""
    import numpy as np

    data = np.load(path)
    mapped: dict[int, int] = {}
    for at, kind, address, size in zip(data["event_at"].tolist(), data["event_kind"].tolist(),
                                       data["event_address"].tolist(), data["event_size"].tolist(), strict=True):
        if at <= event and kind == 0:
            mapped[address] = size
        elif at <= event and kind == 1:
            del mapped[address]
    return sorted(mapped.items())


@pytest.mark.parametrize("event", [700, 15_000])
def test_the_address_map_says_what_lies_where(shown: Any, small: Any, event: int) -> None:
    page = shown.page
    go_to(page, event)
    live = shown.truth.live_rows(event)
    mapped = mapped_at(small[0].with_suffix(".npz"), event)
    left, top, width, height = page.box("#addresses")
    seen: dict[str, int] = {}
    for y in range(8, int(height), 18):
        for part in range(7, 100, 9):
            page.mouse("mouseMoved", left + 128 + (width - 132) * part / 100, top + y)
            said = tip(page)
            if said is None:
                continue
            kind = said[""].split(" · ")[0]
            seen[kind] = seen.get(kind, 0) + 1
            start = int(said.get("at") or said["from"], 16)
            if kind == "live":
                block = next(row for row in live if row.address == start)
                assert said["tag"] == NAMES[block.tag]
                assert number(said["since"].split("·")[0]) == shown.truth.rows.index(block)
            else:
                assert not any(row.address <= start < row.address + row.size for row in live)
                inside = any(low <= start < low + size for low, size in mapped)
                assert inside == (kind == "cached"), (said, hex(start))
    assert set(seen) == {"live", "cached", "unmapped"}, seen
    assert seen["live"] > 20


def short_bytes(size: float) -> str:
    """Format a number of bytes as the page does."""
    unit = 0
    while size >= 1024:
        size, unit = size / 1024, unit + 1
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{size:.{digits if unit else 0}f} {('B', 'KiB', 'MiB', 'GiB')[unit]}"


@pytest.mark.parametrize("event", [300, 9000, 29_999])
def test_the_largest_free_run_at_the_cursor(shown: Any, small: Any, event: int) -> None:
    page = shown.page
    go_to(page, event)
    taken = sorted((row.address, row.address + (row.size + 511) // 512 * 512) for row in shown.truth.live_rows(event))
    free: list[tuple[int, int]] = []
    for low, size in mapped_at(small[0].with_suffix(".npz"), event):
        at = low
        for first, last in (*taken, (low + size, low + size)):
            if last <= low or first > low + size:
                continue
            free.append((at, min(first, low + size)))
            at = max(at, last)
    runs: list[list[int]] = []
    for low, high in sorted((low, high) for low, high in free if high > low):
        if runs and runs[-1][1] == low:
            runs[-1][1] = high
        else:
            runs.append([low, high])
    text = page.js("document.getElementById('fragmentationText').textContent")
    assert f"in one run is {short_bytes(max(high - low for low, high in runs))};" in text


def test_a_click_on_the_map_chooses_the_block(shown: Any) -> None:
    page = shown.page
    left, top, _, _ = page.box("#addresses")
    page.click_at(left + 140, top + 8)
    first = min(shown.truth.live_rows(shown.truth.peak()[0]), key=lambda row: row.address)
    said = details(page)
    assert said["Address"] == hex(first.address)
    assert number(said["Size"].split("(")[1]) == first.size
    assert said["Rounding"] == f"{-first.size % 512} B"
    stack = page.js("document.querySelector('#details pre').textContent")
    assert stack == "service/model.py:88 load\nservice/main.py:12 main"


# ---- the list ----

def test_block_search_finds_by_tag_stack_size_and_number(shown: Any) -> None:
    page, truth = shown.page, shown.truth
    allocs = [row for row in truth.rows if row.op == 0]
    assert search(page, "kv cache") == sum(row.tag == 2 for row in allocs)
    assert search(page, "TOP_K") == sum(row.stack == 5 for row in allocs)
    assert search(page, ">8MiB kv") == sum(row.tag == 2 and row.size >= 8 * MIB for row in allocs)
    assert search(page, "<64KiB workspace") == sum(row.tag == 4 and row.size <= 65536 for row in allocs)
    assert search(page, "#77") == 1
    assert rows(page)[0][0] == "#77"
    assert search(page, "nobody has this") == 0
    assert search(page, "") == len(allocs)


def test_the_list_sorts_and_holds_few_rows(shown: Any) -> None:
    page, truth = shown.page, shown.truth
    allocs = [row for row in truth.rows if row.op == 0]
    largest = max(allocs, key=lambda row: row.size)
    assert rows(page)[0][0] == f"#{largest.id}"
    page.click("[data-column=size] button")
    assert rows(page)[0][0] == f"#{min(allocs, key=lambda row: (row.size, row.id)).id}"
    page.click("[data-column=start] button")
    assert rows(page)[0][0] == "#0"
    page.click("[data-column=start] button")
    assert rows(page)[0][0] == f"#{allocs[-1].id}"
    assert len(rows(page)) < 40


def test_scrolling_the_list_of_blocks_to_its_end_shows_the_last_block(shown: Any) -> None:
    page = shown.page
    allocs = [row for row in shown.truth.rows if row.op == 0]
    page.click("[data-column=start] button")
    page.js("document.getElementById('listRows').scrollTop = 1e9")
    page.settle()
    assert rows(page)[-1][0] == f"#{allocs[-1].id}"


def test_scopes_narrow_the_list(shown: Any) -> None:
    page, truth = shown.page, shown.truth
    go_to(page, 2000)
    choose(page, "scope", "cursor")
    said = page.js("document.getElementById('listCount').textContent")
    assert number(said.split(" of ")[0]) == len(truth.live_rows(2000))


# ---- events ----

def test_out_of_memory_event_is_listed_with_its_reason_and_a_button_that_jumps_to_its_time(shown: Any) -> None:
    page = shown.page
    assert figure(page, "ooms")[0].startswith("1 ")
    assert "trim on stream 0 would free 96.00 MiB" in page.js("document.querySelector('.mark.oom p').textContent")
    page.click(".mark.oom button")
    assert cursor(page) == 20_000


def test_text_of_the_file_is_shown_as_text_and_not_as_markup(shown: Any) -> None:
    assert "sampling <b>&\"'" in legend(shown.page)
    assert shown.page.js("document.querySelectorAll('main b b, main script').length") == 0


# ---- colours and sizes ----

def pixel(page: Any, name: str) -> list[int]:
    """Return the colour of a pixel near the bottom of a chart's plot."""
    return list(page.js(
        f"(() => {{ const from = document.getElementById('{name}'), to = document.createElement('canvas');"
        " to.width = to.height = 1; const pen = to.getContext('2d', { willReadFrequently: true });"
        " pen.drawImage(from, -from.width / 2, -from.height * 0.8);"
        " return [...pen.getImageData(0, 0, 1, 1).data]; })()"))


def test_dark_follows_the_system_until_chosen(shown: Any) -> None:
    page = shown.page
    light = page.js("getComputedStyle(document.body).backgroundColor"), pixel(page, "timeline")
    page.prefer("dark")
    page.settle()
    dark = page.js("getComputedStyle(document.body).backgroundColor"), pixel(page, "timeline")
    assert light[0] != dark[0] and light[1] != dark[1]
    page.click("#theme")
    page.settle()
    assert (page.js("getComputedStyle(document.body).backgroundColor"), pixel(page, "timeline")) == light
    page.click("#theme")
    page.prefer("light")
    page.settle()
    assert (page.js("getComputedStyle(document.body).backgroundColor"), pixel(page, "timeline")) == dark
    page.click("#theme")


@pytest.mark.parametrize("width", [1600, 1280, 700, 420])
def test_page_elements_are_not_cut_off_at_any_width(shown: Any, width: int) -> None:
    page = shown.page
    page.resize(width, 900)
    page.settle()
    assert page.js("document.documentElement.scrollWidth") <= width
    assert page.js("document.getElementById('timeline').width") >= min(width, 1480) * 0.5
    folder = os.environ.get("ACLPOOL_SCREENSHOTS")
    if folder:
        page.screenshot(Path(folder) / f"page-{width}.png", whole=True)


def test_a_sharp_screen_gets_a_sharp_canvas(shown: Any) -> None:
    page = shown.page
    page.resize(1281, 900, scale=2)
    page.wait("(() => { const c = document.getElementById('timeline'); return c.width === 2 * c.clientWidth; })()")


# ---- other files ----

def test_page_of_a_snapshot_shows_blocks_allocated_before_its_recording(browser: Browser, snapshot_page: Path) -> None:
    page = browser.page()
    page.open(snapshot_page)
    go_to(page, 0)
    assert legend(page) == {"reserved": 20 * MIB, "live": 7 * MIB - 100, "before the recording": 7 * MIB - 100,
                            "no tag": 0}
    go_to(page, 4)
    assert legend(page) == {"reserved": 52 * MIB, "live": 34 * MIB - 100, "before the recording": 4 * MIB - 100,
                            "no tag": 30 * MIB}
    go_to(page, 8)
    assert legend(page)["live"] == 10 * MIB - 100 and legend(page)["reserved"] == 20 * MIB
    assert "5.00 MiB were free" in page.js("document.querySelector('.mark.oom p').textContent")
    assert page.errors == []
    page.close()


def test_page_reports_broken_data(browser: Browser, snapshot_page: Path, tmp_path: Path) -> None:
    text = snapshot_page.read_text()
    start = text.index('id="data">') + 10
    broken = tmp_path / "broken.html"
    broken.write_text(text[:start + 40] + "AAAA" + text[start + 44:])
    page = browser.page()
    page.open(broken)
    assert page.js("document.body.dataset.state") == "failed"
    assert "could not be read" in page.js("document.getElementById('failed').textContent")
    page.close()


def test_block_asleep_is_marked_as_asleep_on_the_page(browser: Any, tmp_path: Path) -> None:
    """Check the map's tooltip and the event's text, in the recording of a real pool."""
    acl.Device(0).use()
    with acl.Pool(device=0) as pool, pool.alloc("12MiB", tag="weights"):
        with pool.record() as recording:
            pool.alloc(1000).close()
            pool.sleep("weights", offload=False)
            pool.alloc(1000).close()
            pool.wake()
            pool.alloc(1000).close()
        recording.save(tmp_path / "run.npz")
    page = browser.page()
    assert cli.main(["view", "-q", str(tmp_path / "run.npz"), "-o", str(tmp_path / "run.html")]) == 0
    page.open(tmp_path / "run.html")
    said = {}
    for event in (2, 4, 6):
        go_to(page, event)
        left, top, width, height = page.box("#addresses")
        for part, y in product(range(5, 99, 12), range(8, int(height), 18)):
            page.mouse("mouseMoved", left + 128 + (width - 132) * part / 100, top + y)
            found = tip(page)
            if found is not None and found.get("tag") == "weights":
                said[event] = found.get("asleep", "")
    assert said == {2: "", 4: "12.0 MiB without memory", 6: ""}
    assert "slept" in page.js("document.getElementById('marks').textContent")
    assert page.errors == []
    page.close()


# ---- the stack, the limit, the scale ----

@pytest.fixture
def layered(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    """Return the page of a service with large, short-lived scratch blocks and small, long-lived weights."""
    with acl.Pool(0, limit="64MiB") as pool:
        with pool.record() as recording:
            weights = [pool.alloc("2 MiB", tag="weights") for _ in range(6)]
            for _ in range(200):
                pool.alloc("24 MiB", tag="scratch").close()
        recording.save(tmp_path / "layered.npz")
        for weight in weights:
            weight.close()
    assert cli.main(["view", "-q", str(tmp_path / "layered.npz"), "-o", str(tmp_path / "layered.html")]) == 0
    page = browser.page()
    page.prefer("light")
    page.open(tmp_path / "layered.html")
    choose(page, "axis", "events")
    page.settle()
    yield page
    assert page.errors == []
    page.close()


def column(page: Any) -> list[str]:
    """Return the colours of the plot's middle column from the top, each once for a run of equal pixels."""
    found = page.js(
        "(() => { const from = document.getElementById('timeline'), to = document.createElement('canvas');"
        " to.width = 1; to.height = from.height - 46; const pen = to.getContext('2d', { willReadFrequently: true });"
        " pen.drawImage(from, -Math.round(76 + (from.width - 88) / 2), -17);"
        " const data = pen.getImageData(0, 0, 1, to.height).data, all = [];"
        " for (let i = 0; i < data.length; i += 4) all.push([...data.slice(i, i + 3)].join());"
        " return all.filter((one, i) => one !== all[i - 1]); })()")
    return list(found)


def test_blocks_that_live_longest_are_at_the_bottom_of_the_plot(layered: Any) -> None:
    names = [name for name in legend(layered) if name in ("weights", "scratch")]
    assert names == ["scratch", "weights"]      # the legend is in the order of the picture, from the top down


def test_plot_has_a_line_for_the_limit(layered: Any) -> None:
    alarm = layered.js("getComputedStyle(document.documentElement).getPropertyValue('--alarm').trim()")
    red = ",".join(str(int(alarm[i:i + 2], 16)) for i in (1, 3, 5))
    assert red in column(layered)
    layered.click("#toLive")                    # 36 MiB are live: the line lies above the picture
    layered.settle()
    assert red not in column(layered)


def test_scale_to_live_by_button_and_by_key(layered: Any) -> None:
    pressed = "document.getElementById('toLive').getAttribute('aria-pressed')"
    picture = "document.getElementById('timeline').toDataURL()"
    before = layered.js(picture)
    layered.click("#toLive")
    layered.settle()
    assert layered.js(pressed) == "true" and layered.js(picture) != before
    layered.click_at(*plot_place(layered, 0.5))
    layered.key("l")
    layered.settle()
    assert layered.js(pressed) == "false"


def test_single_allocations_have_lines_where_few_events_are_shown(layered: Any) -> None:
    assert cursor(layered) >= 0
    whole = len(column(layered))
    for _ in range(3):
        layered.click("#zoomIn")
    layered.settle()
    low, high = window(layered)
    assert high - low < 400
    assert len(column(layered)) >= whole + 5    # there are edges between the six weights of 2 MiB
