"""`Pool.record`: all events are in order, even if the ring has overwritten some.

Its files can be replayed and opened.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import random
import resource
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.child import run_python
from support.core import MIB, Door, Made, open_door
from support.requests import small_model

import acl
import acl.sim
from acl.inside._recorded import RecordedEvent
from acl.tools._rig import Rig
from acl.tools.replay.measure import replay_pool
from acl.tools.replay.trace import load_trace


def of_blocks(events: list[RecordedEvent]) -> list[RecordedEvent]:
    return [event for event in events if event.kind in ("alloc", "free")]


def churn(door: Door, live: dict[int, tuple[int, int]], generator: random.Random, steps: int,
          log: list[tuple[str, int, int]]) -> None:
    """Allocate and free at random, and append each operation to `log`, for a comparison with the recording."""
    for _ in range(steps):
        if live and generator.random() < 0.5:
            block = generator.choice(list(live))
            address, size = live.pop(block)
            door.free(block)
            log.append(("free", address, size))
        else:
            size = generator.choice([1, 512, 5000, 70_000, 600_000, 3 * MIB])
            block, address = door.take(size)
            live[block] = (address, size)
            log.append(("alloc", address, size))


def test_recording_has_exactly_the_allocations_and_frees_that_were_made(made: Made) -> None:
    pool, stream, door = made
    seed = random.randrange(1 << 30)
    print("seed", seed)
    live: dict[int, tuple[int, int]] = {}
    log: list[tuple[str, int, int]] = []
    churn(door, live, random.Random(seed), 500, [])
    older = set(live.values())
    with pool.record() as recording:
        churn(door, live, random.Random(seed + 1), 3000, log)
    churn(door, live, random.Random(seed + 2), 100, [])
    events = of_blocks(recording.events)
    before = [event for event in events if event.before]
    assert {(event.address, event.size) for event in before} == older and len(before) == len(older)
    assert [(event.kind, event.address, event.size) for event in events if not event.before] == log
    assert recording.lost == 0
    times = [event.time for event in recording.events]
    assert times == sorted(times) and times[0] == 0 and times[-1] > 0
    assert all(event.stream == stream.handle and event.bytes == -(-event.size // 512) * 512 for event in events)
    for block in live:
        door.free(block)


@pytest.mark.parametrize("capacity", [64, 100, 1000])
def test_overwritten_recording_is_still_consistent(made: Made, capacity: int) -> None:
    """The recording begins with the blocks that were live at its first event, by the test's own list."""
    pool, _, door = made
    live: dict[int, tuple[int, int]] = {}
    log: list[tuple[str, int, int]] = []
    with pool.record(capacity=capacity) as recording:
        churn(door, live, random.Random(capacity), 5000, log)
    events = recording.events
    kept = [(e.kind, e.address, e.size) for e in of_blocks(events) if not e.before]
    assert log[-len(kept):] == kept and len(kept) >= capacity * 0.9
    assert len(kept) + sum(not e.before for e in events if e.kind not in ("alloc", "free")) == 1 << (
        capacity - 1).bit_length()
    assert recording.lost > 0
    state: dict[int, int] = {}
    for kind, address, size in log[:-len(kept)]:
        if kind == "alloc":
            state[address] = size
        else:
            del state[address]
    assert {e.address: e.size for e in events if e.before and e.kind == "alloc"} == state
    for block in live:
        door.free(block)


def test_stopped_recording_records_no_events(made: Made) -> None:
    """After a recording has ended, new blocks are not tracked; the next recording has no events of the first one."""
    pool, _, door = made
    for _ in range(2):
        with pool.record() as recording:
            door.free(door.take(1000)[0])
            noted = door.take(1000)[0]
        later = door.take(1000)[0]
        ages = {block.address: block.age for block in pool.leaks().blocks}
        assert ages[door.address(noted)] is not None and ages[door.address(later)] is None
        door.free(noted)
        door.free(later)
        assert len(of_blocks(recording.events)) == 3


@pytest.mark.parametrize("collection", range(3))
def test_recording_stopped_again_while_it_stops_ends_once(made: Made, collection: int) -> None:
    """A callback of the garbage collector stops it too, as another thread may, while its events are copied."""
    pool, stream, _ = made
    streams = [acl.Stream() for _ in range(20)]     # the copies of their events are enough objects for collections
    for one in streams:
        pool.alloc(1000, one).close()
    recording, left = pool.record(), [collection]

    def collected(phase: str, info: object) -> None:
        left[0] -= phase == "start"
        if left[0] < 0:
            gc.callbacks.remove(collected)
            recording.stop()

    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        recording.stop()
    finally:
        gc.set_threshold(*before)
        if collected in gc.callbacks:
            gc.callbacks.remove(collected)
    assert recording.stopped and of_blocks(recording.events) == []
    with pool.record(), pool.alloc(1000, stream):
        assert [block.age is None for block in pool.leaks().blocks] == [False]
    with pool.alloc(1000, stream):              # tracked if the pool still counts a recording
        assert [block.age for block in pool.leaks().blocks] == [None]
    for one in streams:
        one.close()


def test_recorded_map_and_unmap_events_agree_with_the_reserved_bytes(made: Made, sim: Any) -> None:
    """The bytes that a recording says are mapped, unmapped and trimmed agree with the pool's reserved bytes."""
    pool, stream, door = made
    blocks = [door.take(5 * MIB)[0] for _ in range(3)]
    with pool.record() as recording:
        blocks.append(door.take(40 * MIB)[0])
        while blocks:
            door.free(blocks.pop())
        stream.synchronize()
        pool.trim()
        door.free(door.take(3 * MIB)[0])
        reserved = pool.stats().reserved
    mapped = {"before": 0, "map": 0, "unmap": 0}
    for event in recording.events:
        if event.kind in ("map", "unmap"):
            mapped["before" if event.before else event.kind] += event.size
    assert mapped["before"] >= 15 * MIB and mapped["unmap"] == mapped["before"] + 40 * MIB // (2 * MIB) * (2 * MIB) + (
        mapped["map"] - 40 * MIB - reserved)
    assert mapped["before"] + mapped["map"] - mapped["unmap"] == reserved
    kinds = {event.kind for event in recording.events}
    assert {"trim", "sync"} <= kinds
    assert [event.size for event in recording.events if event.kind == "trim"] == [mapped["unmap"]]
    assert not any(event.path for event in recording.events if event.kind == "unmap")


def test_recorded_page_moves_are_steal_events() -> None:
    """There are as many steals as the pool counts, and each page is mapped again elsewhere."""
    with open_door(limit="32MiB") as (pool, _, door):
        with pool.record() as recording:
            blocks = [door.take(4 * MIB)[0] for _ in range(8)]
            for block in blocks[::2]:
                door.free(block)
            blocks = [*blocks[1::2], door.take(12 * MIB)[0]]
        moved = [event for event in recording.events if event.kind == "unmap"]
        assert pool.stats().steals == len(moved) == 6 and {event.path for event in moved} == {"steal"}
        assert [event.path for event in recording.events if event.kind == "map"].count("own") == 6
        for block in blocks:
            door.free(block)


def test_recorded_slow_allocations_have_a_duration(made: Made) -> None:
    pool, _, door = made
    with pool.record() as recording:
        one = door.take(100)[0]
        door.free(one)
        door.free(door.take(100)[0])
        door.free(door.take(200 * 1024)[0])
    paths = [(event.path, event.wait > 0) for event in of_blocks(recording.events) if event.kind == "alloc"]
    assert paths == [("slow", True), ("hit", False), ("fit", False)]


def test_out_of_memory_is_recorded_as_an_event() -> None:
    with open_door(limit="16MiB") as (pool, stream, door):
        with pool.record() as recording:
            assert door.alloc(64 * MIB) == 0
        found = [event for event in recording.events if event.kind == "oom"]
        assert [(event.size, event.stream) for event in found] == [(64 * MIB, stream.handle)]
        texts = recording.snapshot().meta["ooms"]
        assert len(texts) == 1 and "64.00 MiB could not be had" in texts[0]["text"]


def test_each_recorded_failure_has_its_own_reason(tmp_path: Path) -> None:
    """All failures have reasons, not only the last one; files for PyTorch's viewer have the device's free bytes."""
    with open_door(limit="16MiB") as (pool, _, door), open_door(limit="8MiB", name="other") as (_, _, beside):
        with pool.record() as recording:
            for size in (64, 32):
                assert door.alloc(size * MIB) == 0 == beside.alloc(48 * MIB)
            pool.limit = "128MiB"
            pool.headroom = acl.Device(0).memory_info()[0]
            assert door.alloc(20 * MIB) == 0
        free = acl.Device(0).memory_info()[0]
    ooms = recording.snapshot().meta["ooms"]
    assert [oom["size"] for oom in ooms] == [64 * MIB, 32 * MIB, 20 * MIB]
    reasons = {"64.00": "the pool's limit", "32.00": "the pool's limit", "20.00": "the headroom"}
    for oom, (asked, reason) in zip(ooms, reasons.items(), strict=True):
        assert f"{asked} MiB could not be had" in oom["text"] and reason in oom["text"]
    recording.save(tmp_path / "run.pickle")
    with open(tmp_path / "run.pickle", "rb") as file:
        trace = pickle.load(file)["device_traces"][0]
    assert [entry["device_free"] for entry in trace if entry["action"] == "oom"] == [free] * 3


def test_failures_beyond_the_stored_reasons_are_all_recorded() -> None:
    with open_door(limit="16MiB") as (pool, _, door):
        with pool.record() as recording:
            assert not any(door.alloc((64 + number) * MIB) for number in range(20))
    texts = [oom["text"] for oom in recording.snapshot().meta["ooms"]]
    assert [text.split(" ")[0] for text in texts] == [f"{64 + number}.00" for number in range(20)]
    assert ["limit" in text for text in texts] == [False] * 4 + [True] * 16


def test_ring_of_a_stream_made_during_a_recording_causes_no_page_fault() -> None:
    """A new stream's first 20,000 events cause fewer than 100 page faults more than 20,000 later events."""
    with acl.Pool(0) as pool, pool.record(capacity=1 << 16), acl.Stream(0) as stream:
        pool.register(stream)
        door = Door(stream)
        door.free(door.take(512)[0])

        def faults() -> int:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            for _ in range(10_000):             # 20,000 events: 312 pages
                door.free(door.alloc(512))
            return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

        fresh, *_, worn = [faults() for _ in range(5)]          # the later passes overwrite the first events
        assert fresh < worn + 100                               # the system itself may cause some faults


def test_recorded_events_have_tags_threads_and_python_stacks(made: Made) -> None:
    pool, stream, door = made

    def deeper() -> acl.Buffer:
        return pool.alloc(1000, stream, tag="kv")

    with pool.record(stacks="python") as recording:
        kept = deeper()
        thread = threading.Thread(target=lambda: door.free(door.take(512)[0]), name="a worker")
        thread.start()
        thread.join()
        number = thread.native_id
    events = [event for event in of_blocks(recording.events) if event.kind == "alloc"]
    assert [event.tag for event in events] == ["kv", ""]
    file, line, function = events[0].stack[0]
    assert os.path.samefile(file, __file__) and function.endswith("deeper")
    assert line == deeper.__code__.co_firstlineno + 1
    assert [frame[2] for frame in events[0].stack[1:2]] == ["test_recorded_events_have_tags_threads_and_python_stacks"]
    assert events[1].stack == () and events[1].thread == number and events[0].thread == threading.get_native_id()
    kept.close()


def test_a_model_s_run_has_the_stack_of_its_caller(made: Made) -> None:
    pool, stream, _ = made
    with acl.Model(small_model().to_bytes()) as model:
        with pool.record(stacks="python") as recording:
            for rows in (2, 3):
                model(np.ones((rows, 8), np.float32), stream=stream)
            stream.synchronize()
    allocations = [event for event in of_blocks(recording.events) if event.kind == "alloc"]
    assert allocations
    assert all(any(frame[2] == "test_a_model_s_run_has_the_stack_of_its_caller" for frame in event.stack)
               for event in allocations)
    assert recording.snapshot().rows["step"].max() >= 2


def test_recorded_events_can_have_native_stacks(made: Made) -> None:
    pool, _, door = made
    with pool.record(stacks="native") as recording:
        door.free(door.take(512)[0])
    alloc = next(event for event in recording.events if event.kind == "alloc")
    assert len(alloc.stack) > 3 and any("ffi" in frame[0] or "ctypes" in frame[0] for frame in alloc.stack)
    assert not any("/_core." in frame[0] for frame in alloc.stack[:1])


def test_streams_created_during_a_recording_are_recorded(made: Made) -> None:
    pool, stream, _ = made
    with pool.record() as recording, acl.Stream(0) as other:
        pool.register(other)
        with pool.alloc(100, other):
            pass
        pool.unregister(other)
    kinds = [event.kind for event in recording.events if event.stream not in (0, stream.handle)]
    assert kinds.count("alloc") == kinds.count("free") == 1
    assert "register" in kinds and "unregister" in kinds


def test_events_of_a_running_recording_can_be_read(made: Made) -> None:
    pool, _, door = made
    recording = pool.record()
    block = door.take(512)[0]
    assert [event.kind for event in of_blocks(recording.events)] == ["alloc"]
    door.free(block)
    assert [event.kind for event in of_blocks(recording.events)] == ["alloc", "free"]
    assert not recording.stopped
    recording.stop()
    recording.stop()
    assert recording.stopped and len(of_blocks(recording.events)) == 2


def test_recording_can_be_read_and_switched_while_many_threads_allocate() -> None:
    """Reading, stopping and starting a recording while threads allocate leaves consistent events each time."""
    with acl.Pool(0) as pool:
        done = threading.Event()
        doors = []
        streams = [acl.Stream(0) for _ in range(3)]
        for stream in streams:
            pool.register(stream)
            doors.append(Door(stream))

        under_way = threading.Barrier(len(doors) + 1)

        def work(door: Door, seed: int) -> None:
            acl.Device(0).use()
            live: dict[int, tuple[int, int]] = {}
            generator = random.Random(seed)
            churn(door, live, generator, 100, [])
            under_way.wait()
            while not done.is_set():
                churn(door, live, generator, 100, [])
            for block in live:
                door.free(block)

        threads = [threading.Thread(target=work, args=(door, seed)) for seed, door in enumerate(doors)]
        for thread in threads:
            thread.start()
        under_way.wait()
        for _ in range(6):
            with pool.record(capacity=2000) as recording:
                for _ in range(3):
                    consistent(of_blocks(recording.events))
                    mark = pool.mark()
                    assert pool.peak().live > 0 and pool.histograms().sizes.total > 0
                    assert len(pool.leaks(since=mark)) <= len(pool.leaks()) + 3000
            consistent(of_blocks(recording.events))
        done.set()
        for thread in threads:
            thread.join()
        assert pool.check() == 0 and pool.stats().allocated == 0
        for stream in streams:
            pool.unregister(stream)
            stream.close()


def consistent(events: list[RecordedEvent]) -> None:
    """Check that no address is allocated while it is live, and that each free has its allocation."""
    live: dict[tuple[int, int], RecordedEvent] = {}
    for event in events:
        key = (event.stream, event.address)
        if event.kind == "alloc":
            assert key not in live
            live[key] = event
        else:
            assert live.pop(key).size == event.size


def test_saved_recording_can_be_replayed(made: Made, tmp_path: Path) -> None:
    pool, stream, door = made
    live: dict[int, tuple[int, int]] = {}
    churn(door, live, random.Random(5), 300, [])
    with pool.record(stacks="python") as recording:
        churn(door, live, random.Random(6), 2000, [])
        kept = pool.alloc(100, stream, tag="kept")
    recording.save(tmp_path / "run.npz")
    trace = load_trace(tmp_path / "run.npz")
    rows = recording.snapshot().rows
    assert len(trace) == len(rows["op"])
    assert trace.live_peak() == np.cumsum(np.where(rows["op"] == 0, 1, -1) * rows["size"].astype(np.int64)).max()
    assert int(trace.live()[-1]) == sum(size for _, size in live.values()) + 160
    assert replay_pool(trace, {}, runs=1).numbers["events"] == len(trace)
    kept.close()
    for block in live:
        door.free(block)


def test_recording_file_has_the_arrays_that_its_page_documents(made: Made, tmp_path: Path) -> None:
    """The arrays, types and keys of a file are those that docs/recording-format.md lists."""
    pool, stream, _ = made
    with pool.record(stacks="all") as recording:
        with pool.alloc("3MiB", stream, tag="kv"):
            pass
    recording.save(tmp_path / "run.npz")
    page = Path(__file__).parents[2].joinpath("docs/recording-format.md").read_text(encoding="utf-8")
    wanted = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        kind = cells[1].split(",")[0] if len(cells) == 3 else ""        # such as "uint8, uint16 above 256 streams"
        if kind in ("uint8", "uint16", "uint32", "uint64", "int64"):
            wanted[cells[0].strip("`")] = kind
    with np.load(tmp_path / "run.npz", allow_pickle=False) as data:
        assert {name: str(data[name].dtype) for name in data.files if name != "meta"} == wanted
        assert len({len(data[name]) for name in wanted if not name.startswith("event_")}) == 1
        assert len({len(data[name]) for name in wanted if name.startswith("event_")}) == 1
        meta = json.loads(bytes(data["meta"]))
        tag, stack = int(data["tag"][-1]), int(data["stack"][data["op"] == 0][-1])
    keys = {key for line in page.splitlines() if line.startswith("| `") and line.count("|") == 3
            for key in line.split("|")[1].replace("`", "").replace(" ", "").split(",")}
    assert keys == set(meta)
    assert meta["tags"][tag] == "kv" and meta["format"] == "aclpool recording" and meta["version"] == 1
    names = [meta["frames"][i][2] for i in meta["stacks"][stack]]
    assert any(name.endswith("test_recording_file_has_the_arrays_that_its_page_documents") for name in names)


def test_a_file_of_another_kind_is_refused(made: Made, tmp_path: Path) -> None:
    with made[0].record() as recording:
        pass
    with pytest.raises(ValueError, match=r"path must end in .npz, .pickle or .pkl, not 'x.txt'"):
        recording.save(tmp_path / "x.txt")
    with pytest.raises(TypeError, match="path must be a str or a path, not int"):
        recording.save(3)                                             # type: ignore[arg-type]


@pytest.mark.parametrize(("arguments", "error", "text"), [
    ({"stacks": "perl"}, ValueError, "stacks must be False, 'python', 'native' or 'all', not 'perl'"),
    ({"stacks": ["python"]}, ValueError, r"stacks must be False, .* not \['python'\]"),
    ({"capacity": 0}, ValueError, "capacity must be from 1 to 4294967296 events, not 0"),
    ({"capacity": 1.5}, TypeError, "capacity must be an int, not float"),
])
def test_wrong_recording_arguments_are_refused(made: Made, arguments: dict[str, Any], error: type[Exception], text: str,
                                    ) -> None:
    with pytest.raises(error, match=text):
        made[0].record(**arguments)


def allocated(recording: acl.Recording) -> list[int]:
    """Return the sizes of the allocations made during a recording."""
    return [event.size for event in recording.events if event.kind == "alloc" and not event.before]


def test_overlapping_recordings_each_have_the_events_between_their_start_and_stop(made: Made) -> None:
    """Each recording has the events between its own start and stop, even if another one starts or stops between."""
    pool, _, door = made

    def take(size: int) -> None:
        door.free(door.alloc(size))

    first = pool.record()
    take(1000)
    second = pool.record()
    take(2000)
    first.stop()
    take(3000)
    third = pool.record()
    take(4000)
    second.stop()
    third.stop()
    take(5000)
    assert (allocated(first), allocated(second), allocated(third)) == ([1000, 2000], [2000, 3000, 4000], [4000])
    assert first.lost == second.lost == third.lost == 0
    with pool.record() as last:
        take(6000)
    assert allocated(last) == [6000] and last.capacity == 1 << 20


def test_a_later_recording_loses_what_the_shared_ring_overwrites(made: Made) -> None:
    pool, _, door = made
    with pool.record(capacity=64) as first:
        for _ in range(40):
            door.free(door.alloc(512))
        with pool.record(capacity=4096) as second:
            assert second.capacity == 64
            for _ in range(50):
                door.free(door.alloc(512))
    assert second.lost == 100 - 64 and first.lost == 1 + 180 - 64       # 1: the event of a mapped page
    assert len(allocated(second)) == 32


def test_sleep_and_wake_are_events_and_sleeping_pages_are_not_mapped(made: Made, tmp_path: Path) -> None:
    pool, stream, _ = made
    with pool.alloc(8 * MIB, stream, tag="weights") as weights, pool.alloc(4 * MIB, stream, tag="kv"):
        with pool.record() as recording:
            slept = pool.sleep("weights")
            mapped = pool.stats().reserved
            pool.wake()
        with pool.record() as asleep_at_the_end:
            pool.sleep("weights", offload=False)
        told = [(event.kind, event.address, event.bytes, event.tag) for event in recording.events
                if event.kind in ("sleep", "wake")]
        assert told == [(kind, weights.address, 8 * MIB + 512, "weights") for kind in ("sleep", "wake")]
        with pool.record() as asleep_all_the_time:
            pass
        pool.wake()
    balance = 0
    for event in recording.events:
        balance += {"map": event.size, "unmap": -event.size}.get(event.kind, 0)
        if event.kind == "unmap":
            assert event.path == ""                 # given to the driver, so not a steal
        if event.kind == "sleep":
            assert balance == mapped
    assert slept.memory > 0 and balance == mapped + slept.memory
    before = sum(event.size for event in asleep_all_the_time.events if event.kind == "map")
    assert before == mapped
    ended = asleep_at_the_end.events
    assert sum({"map": e.size, "unmap": -e.size}.get(e.kind, 0) for e in ended) == mapped
    asleep_at_the_end.save(tmp_path / "asleep.pickle")
    segments = pickle.loads((tmp_path / "asleep.pickle").read_bytes())["segments"]
    assert sum(segment["total_size"] for segment in segments) == mapped


def test_dropped_recording_stops_recording(made: Made) -> None:
    pool, _, door = made
    recording = pool.record()
    del recording
    block = door.take(1000)[0]
    ages = {block.address: block.age for block in pool.leaks().blocks}
    assert ages[door.address(block)] is None, "nothing is noted any more"
    door.free(block)


def test_a_recording_outlives_its_pool() -> None:
    pool = acl.Pool(0)
    recording = pool.record()
    pool.alloc(100).close()
    pool.close()
    assert [event.kind for event in of_blocks(recording.events)] == ["alloc", "free"]
    recording.stop()


def test_forked_child_cannot_stop_the_recording_of_its_parent() -> None:
    done = run_python("""
        import os, acl
        pool = acl.Pool(0)
        recording = pool.record()
        child = os.fork()
        if child == 0:
            try:
                recording.stop()
            except Exception as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        print(os.waitpid(child, 0)[1])
        recording.stop()
    """)
    assert done.stdout.strip() == "0", done.stderr


def test_the_snapshot_can_be_walked_backwards(made: Made, tmp_path: Path) -> None:
    """PyTorch's viewer goes backwards from the segments at the end: each event must fit the state at its time."""
    pool, stream, door = made
    live: dict[int, tuple[int, int]] = {}
    churn(door, live, random.Random(7), 300, [])
    with pool.record() as recording:
        for seed in range(4):
            churn(door, live, random.Random(seed), 300, [])
            for block in list(live)[::2]:
                del live[block]
                door.free(block)
            stream.synchronize()
            pool.trim()
    recording.save(tmp_path / "run.pickle")
    snapshot = pickle.loads((tmp_path / "run.pickle").read_bytes())
    pages = {page for segment in snapshot["segments"] for page in range(
        segment["address"], segment["address"] + segment["total_size"], 2 * MIB)}
    blocks = {block["address"]: block["size"] for segment in snapshot["segments"] for block in segment["blocks"]
              if block["state"] == "active_allocated"}
    assert len(pages) * 2 * MIB == pool.stats().reserved - pool.stats().spare
    actions = set()
    for event in reversed(snapshot["device_traces"][0]):
        actions.add(event["action"])
        span = set(range(event["addr"], event["addr"] + event["size"], 2 * MIB))
        if event["action"] == "segment_map":
            assert span <= pages
            pages -= span
        elif event["action"] == "segment_unmap":
            assert not span & pages
            pages |= span
        elif event["action"] == "free_completed":
            assert event["addr"] not in blocks
            blocks[event["addr"]] = event["size"]
            first, last = event["addr"], event["addr"] + event["size"] - 1
            assert {first // (2 * MIB) * 2 * MIB, last // (2 * MIB) * 2 * MIB} <= pages
        elif event["action"] == "alloc":
            assert blocks.pop(event["addr"]) >= event["size"]
    assert not pages and not blocks
    assert {"segment_map", "segment_unmap", "alloc", "free_completed", "free_requested"} <= actions
    for block in live:
        door.free(block)


def test_an_operator_s_workspace_has_the_stack_of_its_caller(made: Made) -> None:
    pool, stream, _ = made
    matmul = acl.Op("MatMul")
    with pool.record(stacks="python") as recording:
        matmul(np.ones((5, 7), np.float32), np.ones((7, 3), np.float32), stream=stream)
        stream.synchronize()
    allocations = [event for event in of_blocks(recording.events) if event.kind == "alloc"]
    assert allocations
    assert all(any(frame[2] == "test_an_operator_s_workspace_has_the_stack_of_its_caller" for frame in event.stack)
               for event in allocations)


def test_the_tags_of_scopes_and_streams_are_recorded(made: Made) -> None:
    """The events of a block that ACL allocates in a scope have its tag; those of a later block have none."""
    pool, _, door = made
    with pool.record() as recording:
        with pool.tag("scope"):
            door.free(door.take(512)[0])
        door.free(door.take(512)[0])
    assert [event.tag for event in of_blocks(recording.events)] == ["scope", "scope", "", ""]


def test_recording_read_while_its_ring_is_overwritten_has_only_valid_events(made: Made) -> None:
    pool, _, door = made
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            for _ in range(100):
                door.free(door.alloc(5000))

    threads = [threading.Thread(target=work) for _ in range(2)]
    with pool.record(capacity=1 << 12) as recording:
        for thread in threads:
            thread.start()
        try:
            for _ in range(30):
                assert all(event.address and event.size for event in of_blocks(recording.events))
        finally:
            done.set()
            for thread in threads:
                thread.join()


def test_copy_of_a_ring_begins_at_the_oldest_event_if_earlier_ones_were_overwritten() -> None:
    rig = Rig()
    rig.free(rig.alloc(512))                    # its pages are mapped before the recording
    rig.record(8)
    for size in range(512, 11 * 512, 512):      # 20 events
        rig.free(rig.alloc(size))
    sizes = [size for size in range(7 * 512, 11 * 512, 512) for _ in range(2)]
    assert rig.recorded(0) == (12, sizes)
    assert rig.recorded(15) == (15, sizes[3:])
