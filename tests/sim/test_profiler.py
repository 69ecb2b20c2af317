"""aclprof*: argument rules as rows, the order of calls, and the file that is written."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.calls import api, out

P, REPEATED, NO_FILE, RUNS, RUNS_NOT, UNKNOWN, FAILED = 100000, 100002, 100003, 100042, 100043, 200007, -1
MARKS, TASKS = 128, 2


class Profile:
    """A profile that is initialised and started; it writes to `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = str(folder).encode()
        assert api.aclprofInit(path, len(path)) == 0
        self.config = new_config(MARKS | TASKS)
        assert api.aclprofStart(self.config) == 0
        self.stamp = api.aclprofCreateStamp()
        self.step = api.aclprofCreateStepInfo()
        self.out = ctypes.addressof(ctypes.c_uint64())
        self.range = ctypes.c_uint32()
        stream = out()
        assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
        self.stream = stream.value

    def end(self) -> list[dict[str, Any]]:
        """Stop the profile, and return the events of its file."""
        assert api.aclrtDestroyStream(self.stream) == 0
        api.aclprofDestroyStepInfo(self.step)
        api.aclprofDestroyStamp(self.stamp)
        assert api.aclprofStop(self.config) == 0
        assert api.aclprofDestroyConfig(self.config) == 0
        assert api.aclprofFinalize() == 0
        written = json.loads((self.folder / f"PROF_sim_{os.getpid()}.json").read_text())
        events: list[dict[str, Any]] = written["traceEvents"]
        return events


def new_config(switches: int, devices: tuple[int, ...] = (0,)) -> int | None:
    made: int | None = api.aclprofCreateConfig((ctypes.c_uint32 * 8)(*devices), len(devices), 0, None, switches)
    return made


pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture
def profile(tmp_path: Path) -> Iterator[Profile]:
    made = Profile(tmp_path)
    yield made
    made.end()


OFF: list[tuple[str, str, int | None]] = [
    ("aclprofInit", "None, 0", P),
    ("aclprofInit", "b'/tmp', 3", P),
    ("aclprofInit", "b'', 0", P),
    ("aclprofInit", "b'x' * 4097, 4097", P),
    ("aclprofInit", "b'/proc/none/such', 16", P),
    ("aclprofInit", "b'/proc/none/such', 15", NO_FILE),
    ("aclprofFinalize", "", RUNS_NOT),
    ("aclprofStart", "None", P),
    ("aclprofStop", "None", P),
    ("aclprofDestroyConfig", "None", P),
    ("aclprofSetConfig", "1, b'15', 2", RUNS_NOT),
    ("aclprofMarkEx", "b'text', 4, None", FAILED),
    ("aclprofPop", "", FAILED),
    ("aclprofRangeStop", "1", FAILED),
    ("aclprofRangePop", "", FAILED),
    ("aclprofCreateStamp", "", None),
]

ON: list[tuple[str, str, int]] = [
    ("aclprofInit", "b'/tmp', 4", REPEATED),
    ("aclprofStart", "p.config", RUNS),
    ("aclprofStart", "p.stamp", P),
    ("aclprofSetConfig", "0, b'15', 2", P),
    ("aclprofSetConfig", "17, b'15', 2", P),
    ("aclprofSetConfig", "1, None, 2", P),
    ("aclprofSetConfig", "1, b'15', 3", P),
    ("aclprofSetConfig", "1, b'15', 2", 0),
    ("aclprofSetStampTraceMessage", "None, b'text', 4", FAILED),
    ("aclprofSetStampTraceMessage", "p.config, b'text', 4", FAILED),
    ("aclprofSetStampTraceMessage", "p.stamp, None, 4", FAILED),
    ("aclprofSetStampTraceMessage", "p.stamp, b't' * 128, 128", FAILED),
    ("aclprofSetStampTraceMessage", "p.stamp, b't' * 127, 127", 0),
    ("aclprofMark", "None", FAILED),
    ("aclprofMark", "p.stamp", 0),
    ("aclprofMarkEx", "None, 4, p.stream", FAILED),
    ("aclprofMarkEx", "b'text', 3, p.stream", FAILED),
    ("aclprofMarkEx", "b'text', 4, None", FAILED),
    ("aclprofMarkEx", "b't' * 128, 128, p.stream", FAILED),
    ("aclprofMarkEx", "b't' * 127, 127, p.stream", 0),
    ("aclprofPush", "None", FAILED),
    ("aclprofPop", "", FAILED),
    ("aclprofRangeStart", "p.stamp, None", FAILED),
    ("aclprofRangeStart", "None, p.out", FAILED),
    ("aclprofRangeStop", "1 << 31", FAILED),
    ("aclprofRangePushEx", "None", FAILED),
    ("aclprofRangePop", "", FAILED),
    ("aclprofGetStepTimestamp", "None, 0, p.stream", P),
    ("aclprofGetStepTimestamp", "p.step, 2, p.stream", P),
    ("aclprofGetStepTimestamp", "p.step, 0, p.stream", 0),
]


@pytest.mark.parametrize(("function", "arguments", "code"), OFF)
def test_profiler_calls_before_init_return_the_documented_codes(
    function: str, arguments: str, code: int | None
) -> None:
    given: tuple[Any, ...] = eval(f"({arguments},)" if arguments else "()")
    assert getattr(api, function)(*given) == code


@pytest.mark.parametrize(("function", "arguments", "code"), ON)
def test_profiler_calls_after_init_return_the_documented_codes(
    profile: Profile, function: str, arguments: str, code: int
) -> None:
    given: tuple[Any, ...] = eval(f"({arguments},)" if arguments else "()", globals(), {"p": profile})
    assert getattr(api, function)(*given) == code


@pytest.mark.parametrize(("switches", "devices"), [(TASKS, ()), (TASKS, (99,)), (TASKS, (0, 0))])
def test_profiler_configurations_with_wrong_values_are_not_created(switches: int, devices: tuple[int, ...]) -> None:
    assert new_config(switches, devices) is None


def test_profiler_configuration_is_checked_when_profiling_starts(tmp_path: Path) -> None:
    path = str(tmp_path / "made").encode()
    for switches, code in [(0, P), (1 << 40, UNKNOWN), (TASKS, RUNS_NOT)]:
        config = new_config(switches)
        assert api.aclprofStart(config) == code
        assert api.aclprofDestroyConfig(config) == 0
    assert api.aclprofInit(path, len(path)) == 0
    config = new_config(TASKS)
    assert api.aclprofStop(config) == RUNS_NOT
    assert api.aclprofStart(config) == 0
    assert api.aclprofCreateStamp() is None  # the profile was started without ACL_PROF_MSPROFTX
    assert api.aclprofFinalize() == 0
    assert api.aclprofInit(path, len(path)) == 0
    assert api.aclprofStart(config) == 0  # not running any more: finalize ended it
    assert api.aclprofFinalize() == 0
    assert api.aclprofDestroyConfig(config) == 0


def test_profiler_can_record_host_marks_only(tmp_path: Path) -> None:
    path = str(tmp_path).encode()
    assert api.aclprofInit(path, len(path)) == 0
    config = new_config(MARKS, ())
    assert api.aclprofStart(config) == 0
    stamp = api.aclprofCreateStamp()
    assert api.aclprofMark(stamp) == 0
    api.aclprofDestroyStamp(stamp)
    assert api.aclprofFinalize() == 0
    assert api.aclprofDestroyConfig(config) == 0


def test_profiler_file_has_the_recorded_ranges(tmp_path: Path) -> None:
    profile = Profile(tmp_path)
    assert api.aclprofSetStampTraceMessage(profile.stamp, b'a "range"', 9) == 0
    assert api.aclprofPush(profile.stamp) == 0
    assert api.aclprofRangeStart(profile.stamp, ctypes.byref(profile.range)) == 0
    assert api.aclprofGetStepTimestamp(profile.step, 0, profile.stream) == 0
    assert api.aclprofGetStepTimestamp(profile.step, 0, profile.stream) == P
    assert api.aclprofMarkEx(b"both", 4, profile.stream) == 0
    assert api.aclprofGetStepTimestamp(profile.step, 1, profile.stream) == 0
    assert api.aclrtSynchronizeStream(profile.stream) == 0
    assert api.aclprofRangeStop(profile.range) == 0
    assert api.aclprofRangeStop(profile.range) == FAILED
    assert api.aclprofPop() == 0
    events = profile.end()
    named = [(e["name"], e["cat"], e["tid"].split()[0]) for e in events]
    assert named.count(("a _range_", "range", "thread")) == 2
    assert named.count(("both", "mark", "thread")) == 1
    on_stream = [name for name, _, where in named if where == "stream"]
    assert [name.split()[-1] for name in on_stream] == ["start", "both", "end"]
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)


def test_profiler_names_have_numbers() -> None:
    number = api.aclprofStr2Id(b"MatMul")
    assert number == api.aclprofStr2Id(b"MatMul") != api.aclprofStr2Id(b"Add")
    assert api.aclprofStr2Id(None) == (1 << 64) - 1
