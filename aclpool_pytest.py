"""The pytest plugin `aclpool_pytest`: it runs tests of NPU code on the simulator (docs/testing.md).

pytest loads this module in every run if aclpool is installed.  So the module imports only pytest and
the standard library.  It does nothing until a test asks for the simulator or a module imports
torch_npu; then it calls `acl.testing`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Generator, Iterator, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acl.testing._process import Nursery
    from acl.testing._session import Session

__all__ = ["Door", "no_pool_leaks", "acl_sim"]

MARKS = {
    "acl_world(devices=, capacity=, soc=, process=True, ...)":
        "the simulated world of the test: settings of acl.sim.configure; process: in a process of its own",
    "acl_fault(function, nth=, every=, p=, times=, code=)":
        "calls that fail while the test runs (acl.sim.fault); the test fails if none did",
    "acl_trace": "the report of a failure shows the calls of the test",
    "acl_leaks(on=True)": "the test fails if it leaves streams, events, memory or other objects",
    "acl_check(allow=[...])": "reports of the checker that the test may cause, as RULE:PATTERN",
}
CHOICES = {"acl_simulator": ("auto", "on", "off"), "acl_fresh": ("test", "module", "process")}
KEY = pytest.StashKey["Door"]()


class Door(MetaPathFinder):
    """The options of one run of pytest, and its `Session` after the simulator was loaded.

    Until then, the object is also an import finder on `sys.meta_path`, which notices an import of torch_npu.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.session: Session | None = None
        self.nursery: Nursery | None = None
        self.begun = self.told = self.looking = False
        for name, choices in CHOICES.items():
            if self.choice(name) not in choices:
                raise pytest.UsageError(f"{name}: expected one of {', '.join(choices)}, got {self.choice(name)!r}")

    def option(self, name: str) -> object:
        """Return the value of an option of the command line; None if it was not given."""
        early = getattr(self.config, "known_args_namespace", None)
        return getattr(early, name, None) or getattr(self.config.option, name, None)

    def choice(self, name: str) -> str:
        """Return the value of a setting, from the command line or else from the configuration file."""
        return str(self.option(name) or self.config.getini(name))

    @property
    def off(self) -> bool:
        return self.choice("acl_simulator") == "off"

    def begin(self) -> Session | None:
        """Load the simulator at the first call; return the session, or None if CANN is in use or the plugin is off."""
        if not self.begun and not self.off:
            self.begun = True
            self.unwatch()
            # Import `aclpool`, not `acl`, because CANN also has a module `acl`.
            importlib.import_module("aclpool")
            self.session = importlib.import_module("acl.testing._session").begin(self)
        return self.session

    def watch(self) -> None:
        """Install the import finder, so that the simulator is loaded before torch_npu."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def unwatch(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of torch_npu, changed so that its execution loads the simulator first; else None."""
        if name != "torch_npu" or self.looking:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                self.begin()
                run(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def opened(config: pytest.Config) -> Door:
    """Return the Door of a run, made at the first call; this loads the simulator if an option asks for it."""
    door = config.stash.get(KEY, None)
    if door is None:
        config.stash[KEY] = door = Door(config)
        if door.choice("acl_simulator") == "on" or door.choice("acl_check"):
            door.begin()
        elif not door.off:
            door.watch()
    return door


def asks(item: pytest.Item) -> bool:
    """Return True if a test has a mark of this plugin or the fixture `acl_sim`."""
    return any(mark.name.startswith("acl_") for mark in item.iter_markers()) or "acl_sim" in getattr(
        item, "fixturenames", ())


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("aclpool", "simulator of Ascend devices (docs/testing.md)")
    options = (
        ("acl_simulator", "auto", "auto: when torch_npu is imported or a test asks, and there is no CANN; on; off"),
        ("acl_fresh", "test", "what begins in a fresh world: test, module; or process: tests with one of their own"),
        ("acl_check", "", "fail tests that the checker reports: all, or some of mem,order,leak,init"),
    )
    for name, default, text in options:
        more = {"nargs": "?", "const": "all"} if name == "acl_check" else {}
        group.addoption("--" + name.replace("_", "-"), dest=name, help=text, **more)
        parser.addini(name, text, default=default)
    parser.addini("acl_blocking", "operators of torch_npu run one by one, so an error belongs to its test",
                  type="bool", default=True)
    parser.addini("acl_leaks", "fail tests that leave objects or memory", type="bool", default=False)
    parser.addini("acl_settings", "the world of all tests, as devices=4 capacity=8GiB", type="args", default=[])
    parser.addini("acl_suppressions", "reports of the checker to leave out, as RULE:PATTERN", type="linelist",
                  default=[])


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    opened(early_config)        # now, because a conftest.py may import torch


def pytest_configure(config: pytest.Config) -> None:
    for name, text in MARKS.items():
        config.addinivalue_line("markers", f"{name}: {text}")
    opened(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    door = config.stash.get(KEY, None)
    if door is not None:
        door.unwatch()
        if door.nursery is not None:
            door.nursery.end()
        if door.session is not None:
            door.session.end()


def pytest_report_header(config: pytest.Config) -> str | None:
    door = config.stash[KEY]
    door.told = door.session is not None
    return None if door.session is None else door.session.header()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    door = config.stash[KEY]
    if door.session is not None and not door.told:
        terminalreporter.write_line(door.session.header())


def alone(item: pytest.Item) -> bool:
    """Return True if a test is to run in its own process."""
    return item.config.stash[KEY].choice("acl_fresh") == "process" or any(
        mark.kwargs.get("process") for mark in item.iter_markers("acl_world"))


def pytest_collection_finish(session: pytest.Session) -> None:
    door = session.config.stash[KEY]
    if not door.off and any(map(alone, session.items)):
        importlib.import_module("aclpool")
        door.nursery = importlib.import_module("acl.testing._process").Nursery(session.items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    nursery = item.config.stash[KEY].nursery
    if nursery is None or not alone(item):
        return None
    nursery.run(item)
    return True


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    __tracebackhide__ = True
    door = item.config.stash[KEY]
    session = door.begin() if asks(item) else door.session
    if session is not None:
        session.before(item)
    elif asks(item) and door.off:
        pytest.skip("the test wants the simulator, and acl_simulator is off")
    elif asks(item):
        pytest.skip("the test wants the simulator, and CANN's library is in use")
    yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    session = request.config.stash[KEY].session
    if session is None or fixturedef.scope == "function":
        return (yield)
    with session.lasting():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    __tracebackhide__ = True
    door = item.config.stash[KEY]
    if door.session is not None:
        door.session.arm(item)
    try:
        yield
    except BaseException:
        if door.session is not None:
            door.session.after_failure(item)
        raise
    if door.session is not None:
        complain(door.session.after(item))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    __tracebackhide__ = True
    session = item.config.stash[KEY].session
    try:
        yield
    except BaseException:
        if session is not None:
            session.leave(item)         # ignore its messages, because a fixture has failed
        raise
    if session is not None:
        complain(session.leave(item))


def complain(texts: list[str]) -> None:
    """Fail the test if there are messages."""
    if texts:
        pytest.fail("\n".join(texts), pytrace=False)


@pytest.fixture
def acl_sim() -> ModuleType:
    """The module `acl.sim`, which controls the simulator; what a test sets with it ends with the test."""
    return importlib.import_module("acl.sim")


@pytest.fixture
def no_pool_leaks() -> Iterator[None]:
    """The test fails if memory that it allocated from a pool is live at its end."""
    importlib.import_module("aclpool")
    with importlib.import_module("acl.testing._leaks").watched_pools():
        yield
