"""Recordings of a real pool as `aclpool view` reads them, against the pool's and the simulator's own counts."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import acl
from acl.tools.view.history import History
from acl.tools.view.plot import draw, groups_of
from acl.tools.view.sources import load_history
from acl.tools.view.summary import bytes_by, summary_of

MIB = 1 << 20


@dataclass
class Counted:
    """Counts that were made outside the pool during the recording."""

    requested: list[int] = field(default_factory=list)    # requested bytes after each event, from the pool
    physical: int = 0                                      # peak of the physical bytes, from the simulator
    tags: dict[str, int] = field(default_factory=dict)     # requested bytes of the kept blocks, by tag
    oom: str = ""


def work(pool: acl.Pool, stream: acl.Stream, seed: int, counted: Counted) -> list[tuple[acl.Buffer, str, int]]:
    """Allocate and free on two streams; return the buffers kept at the end, with their tags and sizes."""
    source = random.Random(seed)
    kept: list[tuple[acl.Buffer, str, int]] = []
    for _ in range(600):
        if kept and source.random() < 0.45:
            kept.pop(source.randrange(len(kept)))[0].close()
        else:
            tag, size = source.choice(["kv", "activations", ""]), source.randrange(1, 3 * MIB)
            on = stream if source.random() < 0.3 else None
            kept.append((pool.alloc(size, on, tag=tag or None), tag, size))
        counted.requested.append(pool.stats().requested)
        counted.physical = max(counted.physical, acl.sim.physical_bytes())
    return kept


@pytest.fixture
def recorded(sim: ModuleType, stream: acl.Stream, tmp_path: Path) -> Any:
    """Return the folder with both files of one recording, and the counts."""
    acl.Device(0).use()
    counted = Counted()
    before = sim.physical_bytes()
    with acl.Pool(device=0, limit="400MiB") as pool:
        with pool.record(stacks="python") as recording:
            kept = work(pool, stream, 4, counted)
            with pytest.raises(acl.OutOfMemoryError) as failure:
                pool.alloc("900MiB", tag="huge")
        counted.oom = str(failure.value)
        counted.physical -= before
        for _, tag, size in kept:
            counted.tags[tag] = counted.tags.get(tag, 0) + size
        recording.save(tmp_path / "run.npz")
        recording.save(tmp_path / "run.pickle")
        counted.tags["blocks"] = len(kept)
        for buffer, _, _ in kept:
            buffer.close()
    return tmp_path, counted


def same_live(history: History, counted: Counted) -> None:
    live = history.live()
    events = np.unique(np.concatenate([history.start, history.end[history.end < history.events]]))
    assert live[events].tolist() == counted.requested


def test_live_bytes_are_the_pools_after_every_event(recorded: Any) -> None:
    folder, counted = recorded
    same_live(load_history(folder / "run.npz"), counted)


def test_snapshot_of_a_recording_has_the_history_of_the_recording_file(recorded: Any) -> None:
    folder, counted = recorded
    ours, torchs = load_history(folder / "run.npz"), load_history(folder / "run.pickle")
    same_live(torchs, counted)
    assert ours.address is not None and torchs.address is not None
    assert sorted(zip(ours.address.tolist(), ours.size.tolist(), strict=True)) == sorted(
        zip(torchs.address.tolist(), torchs.size.tolist(), strict=True))
    # A page move is two entries: the page is reported at its new address before it is removed from the old one.
    assert 0 <= int(torchs.reserved.max()) - int(ours.reserved.max()) <= 2 * MIB
    assert int(torchs.reserved[-1]) == int(ours.reserved[-1])


def test_reserved_bytes_are_the_simulators(recorded: Any) -> None:
    folder, counted = recorded
    assert summary_of(load_history(folder / "run.npz"))["reserved_peak"] == counted.physical


def test_recording_shows_by_tag_which_blocks_were_not_freed(recorded: Any) -> None:
    folder, counted = recorded
    history = load_history(folder / "run.npz")
    kept = np.flatnonzero(history.end >= history.events)
    assert len(kept) == counted.tags["blocks"]
    told = bytes_by(history, "tag", kept)
    for tag in ("kv", "activations", ""):
        size = told[tag or "no tag"]
        assert counted.tags[tag] <= size <= counted.tags[tag] + 64 * len(kept)   # 64: the chip's padding of a block


def test_every_live_byte_is_mapped_at_every_tenth_event(recorded: Any) -> None:
    history = load_history(recorded[0] / "run.npz")
    assert history.address is not None and history.room is not None
    for event in range(0, history.events, 10):
        mapped = (history.spans.start <= event) & (history.spans.end > event)
        low, high = history.spans.address[mapped], (history.spans.address + history.spans.size)[mapped]
        for block in history.live_at(event).tolist():
            first, last = int(history.address[block]), int(history.address[block] + history.room[block])
            cover = np.minimum(high, last) - np.maximum(low, first)
            assert int(cover[cover > 0].sum()) == last - first, (event, block)


def test_recording_has_the_out_of_memory_event_and_the_stacks(recorded: Any) -> None:
    folder, counted = recorded
    history = load_history(folder / "run.npz")
    oom, = (mark for mark in history.marks if mark.kind == "oom")
    assert "900.00 MiB" in oom.title and oom.text.split(";")[0] in counted.oom
    stack = history.stacks[int(history.stack[0])]
    assert "test_recorded.py" in stack.split("\n")[0] and "work" in stack.split("\n")[0]


def test_recording_shows_by_stack_which_blocks_were_not_freed(recorded: Any) -> None:
    """The summary names the source line, when its allocations began, and whether they continue."""
    folder, counted = recorded
    history = load_history(folder / "run.npz")
    told = summary_of(history)["not_freed"]
    assert told["groups"] == len(told["by_stack"]) == 1 and told["blocks"] == counted.tags["blocks"]
    (group,) = told["by_stack"]
    assert group["blocks"] == told["blocks"] and group["bytes"] == told["bytes"] and group["by_tag"] == told["by_tag"]
    assert "test_recorded.py" in group["stack"][0] and group["stack"][0].endswith(" work")
    assert 0 <= group["first_event"] < group["last_event"] < history.events
    assert 0 < group["smallest"] < group["largest"] <= 3 * MIB + 64


def test_sleep_is_shown_and_memory_asleep_is_not_counted_as_reserved(
    sim: ModuleType, stream: acl.Stream, tmp_path: Path
) -> None:
    acl.Device(0).use()
    with acl.Pool(device=0) as pool, pool.alloc("12MiB", stream, tag="weights"):
        with pool.record() as recording:
            before = pool.stats().reserved
            pool.sleep("weights", offload=False)
            pool.alloc(1000, tag="between").close()
            asleep = pool.stats().reserved
            pool.wake()
            pool.alloc(1000, tag="after").close()
        recording.save(tmp_path / "run.npz")
    history = load_history(tmp_path / "run.npz")
    assert [mark.kind for mark in history.marks if mark.kind in ("sleep", "wake")] == ["sleep", "wake"]
    assert not any(mark.kind == "steal" for mark in history.marks)
    assert "12.00 MiB of stream 0" in next(mark.title for mark in history.marks if mark.kind == "sleep")
    assert int(history.reserved.max()) >= before and asleep <= before - 12 * MIB
    assert int(history.reserved[history.reserved_at <= 1][-1]) <= asleep


def test_the_history_knows_the_pools_limit(recorded: Any) -> None:
    folder, _ = recorded
    assert load_history(folder / "run.npz").limit == 400 * MIB
    assert load_history(folder / "run.pickle").limit == 0       # a PyTorch snapshot has no limit


def test_the_still_picture_has_the_longest_lived_below_and_the_limit(sim: ModuleType, tmp_path: Path) -> None:
    with acl.Pool(device=0, limit="40MiB") as pool:
        with pool.record() as recording, pool.alloc("2 MiB", tag="weights"):
            for _ in range(20):
                pool.alloc("24 MiB", tag="scratch").close()
        recording.save(tmp_path / "run.npz")
    history = load_history(tmp_path / "run.npz")
    assert [name for name, _ in groups_of(history, "tag")] == ["weights", "scratch"]
    assert any(getattr(shape, "text", "") == "limit 40.00 MiB" for shape in draw(history).shapes)
