"""The simulator during a run of pytest: it is reset before each test or module, and checked after it.

A *world* is a set of settings of the simulator, such as the number of devices.  Each process has one `Session`:
pytest's process, each worker of xdist, and each child that runs a single test.  Call the methods only in pytest's
thread.
"""

from __future__ import annotations

import gc
import io
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from acl import sim
from acl.adapters._preload import preload
from acl.bind._error import AclError
from acl.runtime._device import Device
from acl.testing._torch import Torch, torch_in_use
from acl.tools.sim_check import TOOLS, Reports, pattern_of, text_of

if TYPE_CHECKING:
    from aclpool_pytest import Door

__all__ = ["Session", "begin"]

#: Kinds of handles that every device in use has, even if a test makes none.
OF_DEVICES = ("context", "stream")
#: Kinds of handles that torch_npu keeps for ever or leaves behind when an operator fails.  They are no leaks of a test.
KEPT_BY_TORCH = (*OF_DEVICES, "data_buffer", "op_attr", "tensor_desc")
#: Marks a stack frame of pytest.  The frames from there on are cut off, because they are equal in all tests.
RUNNER = "/_pytest/"
#: Keywords of the mark acl_world that are not settings of the simulator.
NO_SETTINGS = ("process", "breaks")


def begin(door: Door) -> Session | None:
    """Load the simulator in this process and for its child processes; return None if CANN's library is in use."""
    if door.choice("acl_simulator") == "on":
        os.environ["ACL_BACKEND"] = "sim"
        os.environ.pop("ACL_LIBRARY", None)
    file = checker(door)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)     # "CANN was not found": pytest's header says that already
        if not preload():
            return None
    os.environ["ACL_BACKEND"] = "sim"
    # Child processes find the libraries by this path; this process has loaded them already.
    paths = [sim.library_dir(), *os.environ.get("LD_LIBRARY_PATH", "").split(":")]
    os.environ["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(filter(None, paths)))
    if door.config.getini("acl_blocking"):
        os.environ.setdefault("ASCEND_LAUNCH_BLOCKING", "1")
    try:
        settle(door.config.getini("acl_settings"))
        suppressions = [pattern_of(line) for line in door.config.getini("acl_suppressions")]
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"acl_settings, acl_suppressions: {error}") from None
    return Session(door, file, suppressions)


def settle(words: list[str]) -> None:
    """Set the world of all tests by words such as devices=4, also in the environment, for child processes."""
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"expected NAME=VALUE, got {word!r}")
        sim.configure(**{name: value})
        os.environ[sim._variable(name)] = sim.parse_sizes(value) if name == "capacity" else value


def checker(door: Door) -> Path | None:
    """Turn on the checker's tools that `acl_check` names; return the file for the reports, or None if it names none."""
    tools = door.choice("acl_check")
    if not tools:
        return None
    unknown = set(tools.split(",")) - {*TOOLS, "all"}
    if unknown:
        raise pytest.UsageError(f"acl_check: expected all, or some of {','.join(TOOLS)}, got {tools!r}")
    if sim.loaded() and os.environ.get("ACL_SIM_CHECK") != tools:     # workers of xdist inherit the variable
        raise pytest.UsageError("acl_check: the simulator was loaded before the plugin, and so it does not look")
    handle, name = tempfile.mkstemp(prefix="aclpool-check-")
    os.close(handle)
    os.environ.update(ACL_SIM_CHECK=tools, ACL_SIM_CHECK_JSON=name, ACL_SIM_CHECK_TEXT="0")
    sim.lend_stack()
    return Path(name)


def told(counts: dict[str, int]) -> str:
    """Return a text for counts by kind, such as "2 event, 1 stream"."""
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def world_of(item: pytest.Item) -> tuple[dict[str, object], bool]:
    """Return the settings of a test's `acl_world` marks, and True if the test may break torch_npu.

    A mark of the test overrides one of its class, which overrides one of its module.
    """
    given: dict[str, object] = {}
    for mark in reversed(list(item.iter_markers("acl_world"))):
        if mark.args:
            pytest.fail(f"acl_world: expected keywords only, got {mark.args!r}", pytrace=False)
        given.update(mark.kwargs)
    settings = {name: value for name, value in given.items() if name not in NO_SETTINGS}
    return settings, bool(given.get("breaks"))


class Session:
    """The methods that the plugin's hooks call, in the order in which they are called for a test."""

    def __init__(self, door: Door, file: Path | None, suppressions: list[tuple[str, str]]) -> None:
        self._fresh = door.choice("acl_fresh")
        self._all_leaks = bool(door.config.getini("acl_leaks"))
        self._blocking = os.environ.get("ASCEND_LAUNCH_BLOCKING") == "1"
        self._suppressions = suppressions
        self._file, self._read = file, 0
        self._owner = os.getpid()
        self._base = sim.configuration()    # the settings for tests without `acl_world`
        self._world: dict[str, object] = {}     # the settings of the current test's `acl_world`
        self._module = ""
        self._live: dict[str, int] | None = None    # counts before the test; None if it is not checked for leaks
        self._spoilt: str | None = None     # a message: why all further tests in this process must fail; or None
        self._faults: list[sim.Fault] = []
        self._calls: Path | None = None
        self._during = ExitStack()
        self._torch = Torch()

    def header(self) -> str:
        """Return the line for the header of pytest's report."""
        return (f"aclpool: on the simulator ({self._base['devices']} devices, {self._base['soc']}), "
                f"fresh for each {self._fresh}")

    def apart(self) -> None:
        """Called in a forked child: skip the checker's earlier reports, which belong to other tests."""
        if self._file is not None:
            self._read = self._file.stat().st_size

    def before(self, item: pytest.Item) -> None:
        """Called before a test's fixtures: reset the simulator and set the test's world, or fail."""
        if self._spoilt is not None:
            pytest.fail(self._spoilt, pytrace=False)
        if self._fresh != "module" or item.location[0] != self._module:
            self._module = item.location[0]
            self._restart()
        self._choose(world_of(item)[0])
        self._torch.arrive()
        self._live = self._count() if self._looks_for_leaks(item) else None

    def _restart(self) -> None:
        """Reset the simulator: end faults and traces, and set the counts of calls to 0.

        Then restore the latency of the run, add the environment's faults again, and reset the peaks of memory.
        """
        sim.reset()
        sim.configure(latency=self._base["latency"])
        for rule in filter(None, os.environ.get("ACL_SIM_FAULTS", "").split(",")):
            sim.Fault(rule)
        for device in range(Device.count()):
            sim.reset_physical_peak(device)

    def _choose(self, world: dict[str, object]) -> None:
        """Set the settings of a test's world; first reset the settings that the last world had changed."""
        if world == self._world:
            return
        if {*world, *self._world} != {"latency"} and "context" in sim.live_handles():
            self._leave_devices()
        base = {name: self._base[name] for name in self._world if name in self._base}
        self._world = dict.fromkeys(world, ...)         # equal to no world, so that the next test resets a partial one
        try:
            sim.configure(**base)
            sim.configure(**world)
        except (TypeError, ValueError) as error:
            pytest.fail(f"acl_world: {error}", pytrace=False)
        self._world = world

    def _leave_devices(self) -> None:
        """Reset all devices, because settings can be changed only while no device is in use.

        Fail the test if torch_npu uses a device, or if fixtures or earlier tests still have objects on one.
        """
        if torch_in_use():
            pytest.fail("acl_world: torch_npu uses a device of this process and never gives it back; "
                        "acl_fresh = process gives each test a process of its own", pytrace=False)
        gc.collect()
        alive = {what: count for what, count in self._count().items() if what not in OF_DEVICES}
        if alive:
            pytest.fail("acl_world: the devices cannot be reset, as fixtures or earlier tests still have "
                        f"{told(alive)}; acl_fresh = process gives each test a process of its own", pytrace=False)
        for device in range(Device.count()):
            with suppress(AclError):        # raised if the device is not in use
                Device(device).reset(force=True)

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Context manager around a fixture that several tests share: what it makes is no leak of this test."""
        before = self._count() if self._live is not None else {}
        yield
        if self._live is not None:
            for what, count in self._count().items():
                self._live[what] = self._live.get(what, 0) + max(0, count - before.get(what, 0))

    def arm(self, item: pytest.Item) -> None:
        """Called before the test function: begin the faults and the trace that the marks ask for."""
        self._torch.begin()
        for mark in reversed(list(item.iter_markers("acl_fault"))):
            try:
                self._faults.append(self._during.enter_context(sim.fault(*mark.args, **mark.kwargs)))
            except (TypeError, ValueError) as error:
                self._during.close()
                pytest.fail(f"acl_fault: {error}", pytrace=False)
        if item.get_closest_marker("acl_trace"):
            folder = self._during.enter_context(tempfile.TemporaryDirectory(prefix="aclpool-trace-"))
            self._calls = self._during.enter_context(sim.trace(Path(folder, "calls")))

    def after_failure(self, item: pytest.Item) -> None:
        """After a failed test: add its trace and other problems to its report, and clean up."""
        if self._calls is not None:
            lines = self._calls.read_text().splitlines()
            item.add_report_section("call", "calls", "\n".join(line.split(maxsplit=2)[-1] for line in lines))
        for text in self._disarm(item):
            item.add_report_section("call", "acl", text)

    def after(self, item: pytest.Item) -> list[str]:
        """After a test function that passed: clean up, and return messages by which the test fails.

        One of them is about each `acl_fault` that has made no call fail.
        """
        faults = list(self._faults)
        texts = self._disarm(item)
        return texts + [f"acl_fault: {fault.rule}: no call failed" for fault in faults if fault.hits == 0]

    def _disarm(self, item: pytest.Item) -> list[str]:
        """End the faults and the trace that `arm` began; return messages about problems."""
        said = self._torch.drain()          # before the faults end, because queued operators belong to the test
        self._faults.clear()
        self._calls = None
        self._during.close()
        wrong, lasting = self._torch.depart(said, self._blocking)
        if lasting is not None:
            self._spoilt = (f"torch_npu is not right in this process since {item.nodeid}, and it cannot be mended: "
                            f"{lasting}.  acl_fresh = process gives each test a process of its own")
        texts = [] if wrong is None or world_of(item)[1] else [f"torch_npu at the end of the test: {wrong}"]
        return texts + self._reports(item)

    def _reports(self, item: pytest.Item) -> list[str]:
        """Return the checker's new reports, without the suppressed ones and those that the test allows."""
        if self._file is None:
            return []
        with open(self._file, encoding="utf-8") as file:
            file.seek(self._read)
            lines = file.readlines()
            self._read = file.tell()
        marks = list(item.iter_markers("acl_check"))
        try:
            allowed = [pattern_of(line) for mark in marks for line in mark.kwargs.get("allow", ())]
        except ValueError as error:
            return [f"acl_check: {error}"]
        reports = Reports([*self._suppressions, *allowed], io.StringIO())
        for line in lines:
            reports.add(line)
        for report in reports.kept:
            for place in report["places"]:
                place["stack"] = list(takewhile(lambda line: RUNNER not in line, place["stack"]))
        return [text_of(report).rstrip() for report in reports.kept]

    def leave(self, item: pytest.Item) -> list[str]:
        """Called after the test's fixtures have ended: return messages about leaks and the checker's reports."""
        texts = self._reports(item)
        if self._live is not None and self._spoilt is None:
            before, self._live = self._live, None
            more = {what: count - before.get(what, 0) for what, count in self._count().items()}
            left = {what: count for what, count in more.items() if count > 0}
            if left:
                texts.append(f"left at the end of the test: {told(left)}")
        return texts

    def _looks_for_leaks(self, item: pytest.Item) -> bool:
        mark = item.get_closest_marker("acl_leaks")
        return self._all_leaks if mark is None else bool(mark.kwargs.get("on", True))

    def _count(self) -> dict[str, int]:
        """Return the number of live handles by kind and the bytes by device, after a garbage collection."""
        gc.collect()
        self._torch.empty_cache()
        torch = torch_in_use()
        found = {kind: count for kind, count in sim.live_handles().items()
                 if torch is None or kind not in KEPT_BY_TORCH}
        for device in range(Device.count()):
            used = self._torch.reserved(device)
            used = sim.physical_bytes(device) if used is None else used
            if used:
                found[f"bytes of device {device}"] = used
        return found

    def end(self) -> None:
        """Remove the file of reports; a forked child leaves it to the parent."""
        if self._file is not None and self._owner == os.getpid():
            self._file.unlink(missing_ok=True)
