"""A recording saved as a PyTorch memory snapshot opens in PyTorch's own tool, which reports the same numbers."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Prevents torch from loading an installed torch_npu and CANN's libraries, which these tests do not need.
with pytest.MonkeyPatch.context() as patched:
    patched.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    torch = pytest.importorskip("torch")

from support.core import MIB, Door, open_door

import acl
from acl.tools.replay.trace import load_trace

Saved = tuple[Path, acl.Pool, acl.Recording, list[acl.Buffer]]


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Saved]:
    """Yield a snapshot with freed blocks, and with live ones allocated before and during the recording."""
    with open_door(limit="256MiB") as (pool, stream, door):
        kept = [pool.alloc("5MiB", stream, tag="weights")]
        with pool.record(stacks="python") as recording:
            kept += [pool.alloc(size, stream, tag="kv") for size in (1000, "3MiB", 700_000)]
            pool.alloc("40MiB", stream).close()
            assert door.alloc(512 * MIB) == 0
        recording.save(tmp_path / "run.pickle")
        yield tmp_path / "run.pickle", pool, recording, kept
        for buffer in kept:
            buffer.close()


def viewer(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "torch.cuda._memory_viz", *arguments],
                          env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_snapshot_viewer_reports_the_allocated_bytes(saved: Saved) -> None:
    path, pool, _, _ = saved
    text = viewer("stats", str(path))
    found = re.search(r"total_allocated: ([\d.]+)MiB", text)
    assert found and abs(float(found[1]) - pool.stats().allocated / MIB) < 0.06, text


def test_snapshot_viewer_lists_each_allocation_and_free(saved: Saved) -> None:
    path, _, recording, _ = saved
    text = viewer("trace", str(path))
    assert len(re.findall(r"^\w+ = \w+\[", text, re.MULTILINE)) == sum(
        event.kind == "alloc" for event in recording.events)
    assert len(re.findall(r"^del ", text, re.MULTILINE)) == 1
    assert "raise OutOfMemoryError # 512.0MiB requested" in text


@pytest.mark.parametrize("plot", ["trace_plot", "segment_plot"])
def test_snapshot_viewer_writes_its_plots(saved: Saved, tmp_path: Path, plot: str) -> None:
    viewer(plot, str(saved[0]), "-o", str(tmp_path / "plot.html"))
    assert "MemoryViz" in (tmp_path / "plot.html").read_text(encoding="utf-8")


def test_flame_graphs_fold_the_stacks(saved: Saved) -> None:
    """Test only the text from which `memory` and `segments` draw, because drawing needs a script from the internet."""
    from torch.cuda import _memory_viz

    path, pool, _, _ = saved
    snapshot = pickle.loads(path.read_bytes())
    lines = _memory_viz.memory(snapshot, format_flamegraph=lambda text, *_: text)
    sizes = [int(line.rsplit(" ", 1)[1]) for line in lines.splitlines() if "active_allocated" in line]
    assert sum(sizes) == pool.stats().allocated
    assert any("saved" in line for line in lines.splitlines())
    assert _memory_viz.segments(snapshot, format_flamegraph=lambda text, *_: text)


def test_segments_are_the_pool_s_memory(saved: Saved) -> None:
    path, pool, _, kept = saved
    snapshot = pickle.loads(path.read_bytes())
    stats = pool.stats()
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == stats.reserved - stats.spare
    live = [block for segment in snapshot["segments"] for block in segment["blocks"]
            if block["state"] == "active_allocated"]
    assert {block["address"] for block in live} == {buffer.address for buffer in kept}
    assert sum(block["requested_size"] for block in live) == stats.requested
    for segment in snapshot["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
    assert json.dumps(snapshot)


def test_snapshot_of_the_pool_can_be_replayed(saved: Saved) -> None:
    path, _, recording, _ = saved
    trace = load_trace(path)
    assert trace.allocations == sum(event.kind == "alloc" for event in recording.events)


def test_allocations_through_acl_alone_give_a_viewable_snapshot(tmp_path: Path) -> None:
    with open_door() as (pool, _, door):
        assert isinstance(door, Door)
        with pool.record() as recording:
            door.free(door.take(100)[0])
        recording.save(tmp_path / "x.pkl")
    assert viewer("trace", str(tmp_path / "x.pkl"))
