"""`aclpool view` without a browser: reading files, the summary, the packed data, the plot, the command line."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.histories import TAGS, Truth, make_recording, make_snapshot, service_rows
from support.small_traces import random_trace

from acl.tools import cli
from acl.tools.replay.trace import TraceError, save_trace, trace_of_rows
from acl.tools.view.history import MappedRanges, curve_of_spans, lifetimes, spans_of_changes
from acl.tools.view.pack import pack_column, pack_history
from acl.tools.view.page import bundle, page, web_file
from acl.tools.view.plot import COLOURS, draw, groups_of
from acl.tools.view.replayed import difference, place_blocks
from acl.tools.view.sources import history_of_trace, load_history
from acl.tools.view.summary import summary_of

MIB = 1 << 20
WEB = Path(__file__).parents[3] / "acl/tools/view/web"


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    path = tmp_path_factory.mktemp("files") / "run.npz"
    return path, make_recording(path, 5000, seed=5)


def altered(path: Path, target: Path, **changes: Any) -> Path:
    """Write a copy of an npz file with some arrays replaced (None: left out) and return its path."""
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files} | changes
    with target.open("wb") as file:
        np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    return target


# ---- lifetimes and address spans ----

def test_lifetimes_of_blocks_with_reused_ids_are_separate() -> None:
    op, ids = np.array([0, 0, 1, 0, 1]), np.array([7, 8, 7, 7, 8])
    start, end = lifetimes(op, ids)
    assert start.tolist() == [0, 1, 3]
    assert end.tolist() == [2, 4, 5]


def test_unmapping_the_middle_leaves_both_ends() -> None:
    spans = spans_of_changes([(0, 100, 30), (4, 110, -10)], 9)
    rows = list(zip(spans.address.tolist(), spans.size.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True))
    assert rows == [(100, 10, 0, 9), (110, 10, 0, 4), (120, 10, 0, 9)]
    at, curve = curve_of_spans(spans, 9)
    assert (at.tolist(), curve.tolist()) == ([0, 4], [30, 20])


def test_one_unmapping_ends_several_mappings() -> None:
    ranges = MappedRanges()
    for address in (0, 10, 20):
        ranges.add(address, 10, address)
    ranges.remove(5, 20, 99)
    assert sorted(ranges.held.items()) == [(0, (5, 0)), (25, (5, 20))]
    assert sorted(ranges.rows) == [(5, 5, 0, 99), (10, 10, 10, 99), (20, 5, 20, 99)]


def test_random_mappings_against_a_set_of_bytes() -> None:
    source = np.random.default_rng(4)
    mapped: set[int] = set()
    changes, sizes = [], []
    for event in range(300):
        address, size = int(source.integers(0, 200)), int(source.integers(1, 40))
        there = set(range(address, address + size))
        if source.random() < 0.5:
            mapped |= there
            changes.append((event, address, size))
        else:
            mapped -= there
            changes.append((event, address, -size))
        sizes.append(len(mapped))
    at, curve = curve_of_spans(spans_of_changes(changes, 300), 300)
    steps = np.zeros(300, np.int64)
    for event, bytes_there in zip(at.tolist(), curve.tolist(), strict=True):
        steps[event:] = bytes_there
    assert steps.tolist() == sizes


# ---- the three kinds of files ----

def test_a_trace_gets_addresses_from_a_replay() -> None:
    history = history_of_trace(random_trace(8, 4000, streams=2))
    place_blocks(history)
    assert history.replayed and len(history.notes) == 1
    assert history.address is not None
    for event in (10, 1500, 3999):
        live = history.live_at(event)
        order = live[np.argsort(history.address[live])]
        ends = history.address[order] + history.size[order]
        assert (ends[:-1] <= history.address[order][1:]).all(), "blocks overlap"
        there = (history.spans.start <= event) & (history.spans.end > event)
        assert int(history.spans.size[there].sum()) >= int(history.size[live].sum())
        for block in live.tolist():   # each byte of a live block is mapped
            low, high = int(history.address[block]), int(history.address[block] + history.size[block])
            inside = there & (history.spans.address < high) & (history.spans.address + history.spans.size > low)
            tops = np.minimum(history.spans.address + history.spans.size, high)
            assert int((tops - np.maximum(history.spans.address, low))[inside].sum()) == high - low


def test_difference_of_address_ranges_has_the_bytes_of_the_first_only() -> None:
    source = np.random.default_rng(6)
    for _ in range(200):
        sets = [set(np.flatnonzero(source.random(40) < 0.6).tolist()) for _ in range(2)]
        runs = [[(a, 1) for a in sorted(one)] for one in sets]
        merged = [joined(one) for one in runs]
        found = {byte for address, size in difference(*merged) for byte in range(address, address + size)}
        assert found == sets[0] - sets[1]


def joined(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the runs with adjacent ones merged."""
    found: list[tuple[int, int]] = []
    for address, size in runs:
        if found and sum(found[-1]) == address:
            found[-1] = (found[-1][0], found[-1][1] + size)
        else:
            found.append((address, size))
    return found


def test_a_replay_needs_no_more_than_the_addresses() -> None:
    """Replay more memory than a test harness with a table of pages could hold."""
    rows = [(0, i, 64 << 30, i % 2) for i in range(8)]
    history = history_of_trace(trace_of_rows("large", rows))
    place_blocks(history)
    assert int(history.reserved.max()) == 8 * 64 << 30


@pytest.mark.parametrize("streams", [1, 3])
def test_the_replays_reserved_bytes_are_the_pools(streams: int) -> None:
    from acl.tools._rig import Rig

    trace = random_trace(9, 3000, streams=streams)
    history = history_of_trace(trace)
    place_blocks(history)
    rig, handles, reserved = Rig(audit=False), {}, []
    for op, block, size, stream in zip(trace.op.tolist(), trace.id.tolist(), trace.size.tolist(),
                                       trace.stream.tolist(), strict=True):
        if op == 0:
            handles[block] = rig.alloc(max(1, size), stream + 1)
        else:
            rig.free(handles.pop(block), stream + 1)
        reserved.append(rig.reserved())
    rig.destroy()
    curve = np.zeros(len(trace), np.int64)
    for event, size in zip(history.reserved_at.tolist(), history.reserved.tolist(), strict=True):
        curve[event:] = size
    assert curve.tolist() == reserved


def test_a_recording_is_read_whole(recording: tuple[Path, Truth]) -> None:
    path, truth = recording
    history = load_history(path)
    allocs = [row for row in truth.rows if row.op == 0]
    assert (history.source, history.events, history.blocks) == ("recording", 5000, len(allocs))
    assert history.address is not None and history.time_ns is not None
    assert history.address.tolist() == [row.address for row in allocs]
    assert history.tags == ["no tag", *TAGS[1:]]
    assert history.stacks[5].split("\n") == [
        "service/sampler.py:31 top_k </script>", "service/model.py:143 forward", "service/main.py:12 main"]
    assert [mark.event for mark in history.marks if mark.kind == "oom"] == [3333]
    assert any("12 older events" in note for note in history.notes)


@pytest.mark.parametrize(("changes", "complaint"), [
    ({"address": None}, "incomplete.*address"),
    ({"tag": np.zeros(3, np.uint16)}, "'tag': expected 5000 numbers"),
    ({"meta": np.frombuffer(b"{", np.uint8)}, "not JSON"),
    ({"meta": np.frombuffer(b'{"format": "x"}', np.uint8)}, "expected an aclpool recording"),
    ({"meta": np.frombuffer(b'{"format": "aclpool recording", "version": 9}', np.uint8)}, "version 9"),
    ({"op": np.ones(5000, np.uint8)}, "freed but not live"),
])
def test_a_broken_recording_is_refused(recording: tuple[Path, Truth], tmp_path: Path, changes: Any,
                                       complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        load_history(altered(recording[0], tmp_path / "bad.npz", **changes))


def test_snapshot_shows_blocks_allocated_before_its_recording(tmp_path: Path) -> None:
    make_snapshot(tmp_path / "snap.pickle")
    history = load_history(tmp_path / "snap.pickle")
    assert history.live().tolist() == [
        *(size * MIB - 100 for size in (7, 4, 4, 4, 34, 4, 4, 4, 10, 10))]
    assert history.reserved_at.tolist() == [0, 3, 7]
    assert history.reserved.tolist() == [20 * MIB, 52 * MIB, 20 * MIB]
    assert [mark.kind for mark in history.marks] == ["oom"]


@pytest.mark.parametrize(("content", "complaint"), [
    (b"not a pickle", "neither an npz nor"), (pickle.dumps([1]), "no segments"),
    (pickle.dumps({"segments": [], "device_traces": [[]]}), "no blocks"),
    (pickle.dumps({"segments": [{"address": 1}], "device_traces": [[]]}), "incomplete"),
    (pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 5}]]}), "incomplete"),
    (pickle.dumps(Path("x")), "only dicts"),
])
def test_file_that_is_not_a_snapshot_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(TraceError, match=complaint):
        load_history(tmp_path / "bad")


# ---- numbers ----

def test_the_summary_is_what_counting_gives(recording: tuple[Path, Truth], tmp_path: Path) -> None:
    path, truth = recording
    assert cli.main(["view", "-q", str(path), "--json", str(tmp_path / "s.json")]) == 0
    summary = json.loads((tmp_path / "s.json").read_text())
    event, size = truth.peak()
    assert (summary["peak"]["event"], summary["peak"]["live"]) == (event, size)
    names = ["no tag", *TAGS[1:]]
    assert summary["peak"]["by_tag"] == {names[tag]: size for tag, size in truth.live_by("tag", event).items()}
    kept = truth.live_rows(4999)
    assert summary["not_freed"]["bytes"] == sum(row.size for row in kept)
    assert len(summary["ooms"]) == 1
    assert not (tmp_path / "run.html").exists()


def unpack(text: str) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Decode the page's data as decode.js does."""
    stream = gzip.decompress(base64.b64decode(text))
    length = int.from_bytes(stream[:4], "little")
    meta = json.loads(stream[4:4 + length])
    columns, at = {}, 4 + length
    for about in meta["columns"]:
        planes = np.frombuffer(stream, np.uint8, about["count"] * about["width"], at).reshape(about["width"], -1)
        values = np.zeros(about["count"], np.int64)
        for i, plane in enumerate(planes):
            values += plane.astype(np.int64) << 8 * i
        columns[about["name"]] = (np.cumsum(values) if about["rising"] else values).tolist()
        at += about["count"] * about["width"]
    assert at == len(stream)
    return meta, columns


def test_packed_columns_can_be_unpacked(recording: tuple[Path, Truth]) -> None:
    history = load_history(recording[0])
    meta, columns = unpack(pack_history(history, "9.9"))
    assert (meta["version"], meta["events"]) == ("9.9", 5000)
    assert columns["start"] == history.start.tolist()
    assert columns["size"] == history.size.tolist()
    assert columns["address"] == history.address.tolist()   # type: ignore[union-attr]
    assert columns["time"] == history.time_ns.tolist()      # type: ignore[union-attr]
    assert columns["life"] == (history.end - history.start).tolist()


@pytest.mark.parametrize("number", [-1, 1 << 53])
def test_a_number_that_a_page_cannot_hold_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="expected numbers from 0"):
        pack_column("x", np.array([0, number]))


# ---- the page ----

def test_two_scripts_may_not_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a.js": 'import { one } from "./b.js";\nconst TWO = 2, HERE = 3;\n',
             "b.js": "export const one = 1;\nfunction HERE() {}\n"}
    monkeypatch.setattr("acl.tools.view.page.web_file", texts.__getitem__)
    with pytest.raises(ValueError, match="HERE is in both"):
        bundle("a.js")


def test_scripts_in_a_circle_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a.js": 'import { x } from "./b.js";\n', "b.js": 'import { y } from "./a.js";\n'}
    monkeypatch.setattr("acl.tools.view.page.web_file", texts.__getitem__)
    with pytest.raises(ValueError, match=r"circle: a.js -> b.js -> a.js"):
        bundle("a.js")


def test_every_script_is_in_the_page_and_short() -> None:
    used = bundle("app.js") + bundle("worker.js")
    for script in WEB.glob("*.js"):
        text = web_file(script.name)
        assert text.split("\n", 1)[0] in used, script.name
        assert text.startswith("// ") and text.count("\n") < 400, script.name
        assert max(map(len, text.splitlines())) <= 140, script.name


def test_page_refers_to_no_other_host() -> None:
    text = page("T", "")
    assert "http:" not in text and "https:" not in text and "import(" not in text
    assert "default-src 'none'" in text


def test_page_title_is_escaped() -> None:
    text = page('</title><script>alert("x")</script>', "")
    assert "<script>alert" not in text


# ---- the plot ----

def test_the_plots_areas_are_the_files_bytes(recording: tuple[Path, Truth]) -> None:
    path, truth = recording
    history = load_history(path)
    groups = dict(groups_of(history, "tag"))
    event, _ = truth.peak()
    live = history.live_at(event)
    for tag, size in truth.live_by("tag", event).items():
        mask = groups[["no tag", *TAGS[1:]][tag]]
        assert int(history.size[live][mask[live]].sum()) == size
    texts = [shape.text for shape in draw(history).shapes if hasattr(shape, "text")]
    assert f"At the peak, event {event:,}" in texts


def test_plots_are_files_that_others_read(recording: tuple[Path, Truth], tmp_path: Path) -> None:
    assert cli.main(["view", "-q", str(recording[0]), "--plot", str(tmp_path / "p.svg"), "--by", "stream"]) == 0
    import xml.etree.ElementTree as tree

    assert tree.parse(tmp_path / "p.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "p.svg").stat().st_size < 400_000
    assert 'class="line"' in (tmp_path / "p.svg").read_text()   # the reserved line is seen in the dark too


def test_many_tags_are_put_together() -> None:
    rows = [(0, i, 512 * (i + 1), 0) for i in range(30)]
    history = history_of_trace(trace_of_rows("t", rows))
    history.tags, history.tag = [f"tag {i}" for i in range(30)], np.arange(30)
    names = [name for name, _ in groups_of(history, "tag")]
    assert names == [*(f"tag {i}" for i in range(21, 30)), "21 others"]     # the longest-lived tag is first


def test_the_plot_has_the_pages_colours() -> None:
    style = web_file("style.css").split("@media", 1)[0]
    for number, colour in enumerate(COLOURS):
        assert f"--group{number}: {colour};" in style


# ---- the command ----

def test_the_page_goes_beside_the_file_or_to_standard_output(tmp_path: Path) -> None:
    save_trace(tmp_path / "t.npz", random_trace(3, 500))
    done = subprocess.run([sys.executable, "-m", "acl.tools.view", str(tmp_path / "t.npz"), "-o", "-"],
                          cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("<!doctype html>")
    assert "replaying it through the pool" in done.stderr
    assert not (tmp_path / "t.html").exists()
    assert cli.main(["view", "-q", str(tmp_path / "t.npz"), "--title", "Ours & theirs"]) == 0
    assert "<title>Ours &amp; theirs</title>" in (tmp_path / "t.html").read_text()


def test_view_option_no_replay_leaves_reserved_memory_unknown(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_trace(tmp_path / "t.npz", random_trace(3, 500))
    capsys.readouterr()
    assert cli.main(["view", "-q", str(tmp_path / "t.npz"), "--no-replay", "--json", "-"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["reserved_by"], summary["ratio"]) == ("unknown", None)


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["nothing.npz"], "nothing.npz"), (["t.npz", "-o", "no/where.html"], "folder that exists"),
    (["t.npz", "--plot", "x.png"], "ending in .svg"), (["t.npz", "-o", "-", "--json", "-"], "at most one"),
    (["t.npz", "-o", "t.npz"], "other than the one"),
])
def test_view_names_wrong_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                           arguments: list[str], complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    save_trace(tmp_path / "t.npz", random_trace(3, 50))
    assert cli.main(["view", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("aclpool view: ") and complaint in error


def test_example_service_recording_frees_only_live_blocks_and_is_repeatable() -> None:
    """Check the simulated service of these tests: each free has its alloc, and a seed always gives the same rows."""
    rows = service_rows(2000, 9)
    live: set[int] = set()
    for row in rows:
        assert (row.id in live) == (row.op == 1)
        live ^= {row.id}
    assert [row.size for row in rows] == [row.size for row in service_rows(2000, 9)]
    trace = trace_of_rows("t", [(row.op, row.id, row.size, row.stream) for row in rows])
    assert summary_of(history_of_trace(trace))["events"] == 2000


def test_expandable_segment_grows_from_its_size_before_the_trace(tmp_path: Path) -> None:
    start, size = 0x7F0000000000, 20 << 20
    block = {"size": size, "requested_size": size, "state": "active_allocated", "frames": []}
    entry = {"size": size, "stream": 0, "frames": []}
    snapshot = {
        "segments": [{"device": 0, "address": start, "total_size": 2 * size, "stream": 0, "is_expandable": True,
                      "blocks": [{**block, "address": start}, {**block, "address": start + size}]}],
        "device_traces": [[
            {**entry, "action": "alloc", "addr": start, "time_us": 1},
            {**entry, "action": "segment_map", "addr": start + size, "time_us": 2},
            {**entry, "action": "alloc", "addr": start + size, "time_us": 3},
            {**entry, "action": "segment_unmap", "addr": start + 2 * size, "time_us": 4},
        ]],
    }
    (tmp_path / "torch.pickle").write_bytes(pickle.dumps(snapshot))
    history = load_history(tmp_path / "torch.pickle")
    found = list(zip(history.reserved_at.tolist(), (history.reserved // size).tolist(), strict=True))
    assert found == [(0, 2), (2, 3), (4, 2)]


def test_a_trace_for_perfetto_has_the_curves(tmp_path: Path) -> None:
    import acl

    with acl.Pool(0, limit="8MiB") as pool:
        with pool.record() as recording:
            kept = [pool.alloc(1000 * number, tag=f"tag {number % 20}\x1b") for number in range(1, 41)]
            with pytest.raises(acl.OutOfMemoryError):
                pool.alloc("16MiB")
            for one in kept:
                one.close()
        recording.save(tmp_path / "run.npz")
    assert cli.main(["view", str(tmp_path / "run.npz"), "--trace", str(tmp_path / "run.json"), "-q"]) == 0
    assert not (tmp_path / "run.html").exists()
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    tags, streams, held = ([event for event in events if event["ph"] == "C" and event["name"] == name]
                           for name in ("live by tag", "live by stream", "reserved"))
    assert len(tags) == len(streams) == len(held) == 80
    assert [event["ts"] for event in tags] == sorted(event["ts"] for event in tags)
    for one, other in zip(tags, streams, strict=True):
        assert sum(one["args"].values()) == sum(other["args"].values())
    assert max(sum(event["args"].values()) for event in tags) // 10_000 == 82
    assert len(tags[0]["args"]) == 17 and "others" in tags[0]["args"] and "tag 19\\x1b" in tags[0]["args"]
    assert sum(tags[-1]["args"].values()) == 0 and held[-1]["args"]["bytes"] > 0
    (oom,) = [event for event in events if event["ph"] == "i" and event["cat"] == "oom"]
    assert "16.00 MiB" in oom["name"]
    plain = trace_of_rows("plain", [(0, 0, 64, 0), (1, 0, 64, 0)])
    save_trace(tmp_path / "plain.npz", plain)
    assert cli.main(["view", str(tmp_path / "plain.npz"), "--trace", "-", "-q"]) == 0
