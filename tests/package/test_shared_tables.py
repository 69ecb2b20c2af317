"""Tables of the process that a thread reads while another thread adds entries."""

import itertools
from collections.abc import Iterator

import pytest
from support.interleaved import before_each_bytecode

import acl
from acl.inside import _asked, _leaks, _ledger
from acl.runtime import _work

pytestmark = pytest.mark.usefixtures("no_leaks")


def test_loop_over_a_dict_that_another_thread_fills_fails_in_the_helper() -> None:
    table = {0: 0}
    numbers = itertools.count(1)

    def count() -> int:
        return sum(1 for _ in table.items())

    def copied() -> int:
        return sum(1 for _ in list(table.items()))

    with (
        pytest.raises(RuntimeError, match="changed size during iteration"),
        before_each_bytecode(lambda: table.setdefault(next(numbers), 0)),
    ):
        count()
    with before_each_bytecode(lambda: table.setdefault(next(numbers), 0)):
        copied()


@pytest.fixture
def streams() -> Iterator[list[acl.Stream]]:
    made = [acl.Stream()]
    yield made
    for stream in made:
        stream.close()


def test_streams_of_a_context_are_listed_while_another_thread_makes_streams(streams: list[acl.Stream]) -> None:
    current = acl.Context.current()
    assert current is not None
    with before_each_bytecode(lambda: streams.append(acl.Stream())):
        found = _work.progresses(current.handle)
    assert len(found) >= 1


def test_report_at_exit_is_made_while_another_thread_makes_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched:
        """Stands for a pool."""

        name, device = "watched", 0

    class Report:
        """Stands for the pool's leak report."""

        waiting = True

        def text(self, *, holders: bool) -> str:
            return "a leak"

    kept = [Watched()]
    numbers = itertools.count(1)

    def add() -> None:
        kept.append(Watched())
        _leaks.watched[next(numbers)] = kept[-1]    # type: ignore[assignment]

    monkeypatch.setattr(_leaks, "watched", type(_leaks.watched)({0: kept[0]}))
    monkeypatch.setattr(_leaks, "leaks_of", lambda pool: Report())
    with before_each_bytecode(add):
        text = _leaks.exit_text()
    assert "watched on device 0 has a leak" in text


def test_functions_at_sigterm_are_called_while_another_thread_registers_one(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(_asked, "ends", {called.append: 7})
    monkeypatch.setattr(_asked.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(_asked.os, "kill", lambda *arguments: None)
    with before_each_bytecode(lambda: _asked.ends.setdefault(lambda pid: None, 0)):
        _asked.on_sigterm(15, None)
    assert called == [7]


def test_ledger_asks_its_tellers_while_another_thread_adds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    monkeypatch.setattr(_ledger, "tellers", {"first": lambda device: [("part", 512)]})
    with before_each_bytecode(lambda: _ledger.tellers.setdefault(str(next(numbers)), lambda device: [])):
        rows = _ledger.told_rows(0)
    assert [(row.bytes, row.tag) for row in rows] == [(512, "part")]
