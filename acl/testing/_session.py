"""The simulated world of a run of pytest: begun afresh for each test or module, looked at after each.

One object for each process: workers of xdist and tests in processes of their own have one each.  Thread
rule: pytest's thread only.
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

#: What a device in use has itself.
OF_DEVICES = ("context", "stream")
#: What torch_npu makes once and keeps, and what it leaves behind when an operator fails: no leaks of a test.
KEPT_BY_TORCH = (*OF_DEVICES, "data_buffer", "op_attr", "tensor_desc")
#: A frame of pytest: what is below it in a stack is the same for all tests.
RUNNER = "/_pytest/"
#: Keywords of the mark acl_world that are no settings.
NO_SETTINGS = ("process", "breaks")


def begin(door: Door) -> Session | None:
    """Load the simulator, for this process and those that it starts; None if CANN's library is in use."""
    if door.choice("acl_simulator") == "on":
        os.environ["ACL_BACKEND"] = "sim"
        os.environ.pop("ACL_LIBRARY", None)
    file = checker(door)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)     # that there is no CANN: the header says so
        if not preload():
            return None
    os.environ["ACL_BACKEND"] = "sim"
    # For children: this process has loaded all.
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
    """Choose the world of all tests, by words such as devices=4; children are told by their environment."""
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"expected NAME=VALUE, got {word!r}")
        sim.configure(**{name: value})
        os.environ[sim._variable(name)] = sim.parse_sizes(value) if name == "capacity" else value


def checker(door: Door) -> Path | None:
    """Have the checker look for what `acl_check` names; return the file to which it adds its reports."""
    tools = door.choice("acl_check")
    if not tools:
        return None
    unknown = set(tools.split(",")) - {*TOOLS, "all"}
    if unknown:
        raise pytest.UsageError(f"acl_check: expected all, or some of {','.join(TOOLS)}, got {tools!r}")
    if sim.loaded() and os.environ.get("ACL_SIM_CHECK") != tools:     # workers of xdist inherit it
        raise pytest.UsageError("acl_check: the simulator was loaded before the plugin, and so it does not look")
    handle, name = tempfile.mkstemp(prefix="aclpool-check-")
    os.close(handle)
    os.environ.update(ACL_SIM_CHECK=tools, ACL_SIM_CHECK_JSON=name, ACL_SIM_CHECK_TEXT="0")
    sim.lend_stack()
    return Path(name)


def told(counts: dict[str, int]) -> str:
    """What was left, for people."""
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


def world_of(item: pytest.Item) -> tuple[dict[str, object], bool]:
    """The settings that a test's marks ask for, the nearest one first to decide; whether it breaks torch_npu."""
    given: dict[str, object] = {}
    for mark in reversed(list(item.iter_markers("acl_world"))):
        if mark.args:
            pytest.fail(f"acl_world: expected keywords only, got {mark.args!r}", pytrace=False)
        given.update(mark.kwargs)
    settings = {name: value for name, value in given.items() if name not in NO_SETTINGS}
    return settings, bool(given.get("breaks"))


class Session:
    """What the plugin's hooks call; the methods stand in the order of the calls."""

    def __init__(self, door: Door, file: Path | None, suppressions: list[tuple[str, str]]) -> None:
        self._fresh = door.choice("acl_fresh")
        self._all_leaks = bool(door.config.getini("acl_leaks"))
        self._blocking = os.environ.get("ASCEND_LAUNCH_BLOCKING") == "1"
        self._suppressions = suppressions
        self._file, self._read = file, 0
        self._owner = os.getpid()
        self._base = sim.configuration()    # of the run, as tests find it that ask for nothing else
        self._world: dict[str, object] = {}     # what the present test asks for
        self._module = ""
        self._live: dict[str, int] | None = None    # before the test, if leaks are looked for
        self._spoilt: str | None = None     # why no test of this process can be right any more
        self._faults: list[sim.Fault] = []
        self._calls: Path | None = None
        self._during = ExitStack()
        self._torch = Torch()

    def header(self) -> str:
        """A line for pytest's report."""
        return (f"aclpool: on the simulator ({self._base['devices']} devices, {self._base['soc']}), "
                f"fresh for each {self._fresh}")

    def apart(self) -> None:
        """In the child of a fork: reports of other tests are not this one's."""
        if self._file is not None:
            self._read = self._file.stat().st_size

    def before(self, item: pytest.Item) -> None:
        """Begin a fresh world, or fail if there cannot be one."""
        if self._spoilt is not None:
            pytest.fail(self._spoilt, pytrace=False)
        if self._fresh != "module" or item.location[0] != self._module:
            self._module = item.location[0]
            self._restart()
        self._choose(world_of(item)[0])
        self._torch.arrive()
        self._live = self._count() if self._looks_for_leaks(item) else None

    def _restart(self) -> None:
        """End faults and trace, count from zero; what the environment asks for begins again."""
        sim.reset()
        sim.configure(latency=self._base["latency"])
        for rule in filter(None, os.environ.get("ACL_SIM_FAULTS", "").split(",")):
            sim.Fault(rule)
        for device in range(Device.count()):
            sim.reset_physical_peak(device)

    def _choose(self, world: dict[str, object]) -> None:
        """Have the settings of a test, and those of the run for the rest."""
        if world == self._world:
            return
        if {*world, *self._world} != {"latency"} and "context" in sim.live_handles():
            self._leave_devices()
        base = {name: self._base[name] for name in self._world if name in self._base}
        self._world = dict.fromkeys(world, ...)         # no test's world: part of it may be in force after an error
        try:
            sim.configure(**base)
            sim.configure(**world)
        except (TypeError, ValueError) as error:
            pytest.fail(f"acl_world: {error}", pytrace=False)
        self._world = world

    def _leave_devices(self) -> None:
        """Reset all devices: the settings of a world can be changed only while none is in use."""
        if torch_in_use():
            pytest.fail("acl_world: torch_npu uses a device of this process and never gives it back; "
                        "acl_fresh = process gives each test a process of its own", pytrace=False)
        gc.collect()
        alive = {what: count for what, count in self._count().items() if what not in OF_DEVICES}
        if alive:
            pytest.fail("acl_world: the devices cannot be reset, as fixtures or earlier tests still have "
                        f"{told(alive)}; acl_fresh = process gives each test a process of its own", pytrace=False)
        for device in range(Device.count()):
            with suppress(AclError):        # of a device that is not in use
                Device(device).reset(force=True)

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Count what a fixture of several tests makes as there before the test."""
        before = self._count() if self._live is not None else {}
        yield
        if self._live is not None:
            for what, count in self._count().items():
                self._live[what] = self._live.get(what, 0) + max(0, count - before.get(what, 0))

    def arm(self, item: pytest.Item) -> None:
        """Begin what the marks ask for during the test itself."""
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
        """Add to the report of a test that failed what the simulator knows, and clean up."""
        if self._calls is not None:
            lines = self._calls.read_text().splitlines()
            item.add_report_section("call", "calls", "\n".join(line.split(maxsplit=2)[-1] for line in lines))
        for text in self._disarm(item):
            item.add_report_section("call", "acl", text)

    def after(self, item: pytest.Item) -> list[str]:
        """What is wrong with a test that passed by itself."""
        faults = list(self._faults)
        texts = self._disarm(item)
        return texts + [f"acl_fault: {fault.rule}: no call failed" for fault in faults if fault.hits == 0]

    def _disarm(self, item: pytest.Item) -> list[str]:
        """End what `arm` began; return what is wrong."""
        said = self._torch.drain()          # queued operators belong to the test, and meet its faults
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
        """The checker's new reports, without those that are allowed."""
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
        """What is wrong when the fixtures of the test are gone: leaks, for one."""
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
        """Live handles by kind and bytes by device, when all that is dropped is gone."""
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
        """Take the file of reports away; not in a child of a fork."""
        if self._file is not None and self._owner == os.getpid():
            self._file.unlink(missing_ok=True)
