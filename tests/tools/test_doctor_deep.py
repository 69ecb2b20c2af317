"""`aclpool doctor --deep`: a rehearsal on the simulator, and questions that hang, crash or are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.child import run_child

import acl
import acl.sim
from acl.tools.doctor.deep import demand, memory, order, probing, report
from acl.tools.doctor.deep.answers import Answer, Question, ask
from acl.tools.replay.price import PRICES, load_prices

pytestmark = pytest.mark.subprocess_heavy
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def questions_that_go_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put deep_questions.py on the path; the process of each question inherits the path."""
    monkeypatch.syspath_prepend(HERE)


def silent(text: str) -> None:
    """Ignore the progress of a question."""


def asked(name: str, limit: float = 60, **environment: str) -> Answer:
    """Ask one question of deep_questions.py and return its answer."""
    return ask(Question(name, f"deep_questions:{name}", limit, ""), limit, environment=environment)


def test_question_is_answered_by_another_process() -> None:
    told: list[str] = []
    found = ask(Question("good", "deep_questions:good", 60, ""), 60, told.append)
    assert (found.verdict, found.text, told, found.output) == ("ok", "fine", ["half of it"], "")
    assert found.facts["pid"] not in (0, None) and found.seconds > 0


@pytest.mark.parametrize("name", ["hangs", "hangs_and_ignores"])
def test_question_that_hangs_is_ended(name: str) -> None:
    found = asked(name, limit=3)
    assert (found.verdict, found.text) == ("hung", "no answer in 3 s")
    assert "before it hung" in found.output


@pytest.mark.parametrize("name, verdict, text", [
    ("crashes", "crashed", "ended by SIGSEGV"), ("leaves", "crashed", "ended with status 7 and without an answer"),
    ("leaves_a_child", "crashed", "ended with status 7 and without an answer"),
    ("raises", "failed", "ZeroDivisionError: in a question"), ("lacks", "absent", "a_package_that_is_not_there")])
def test_question_that_ends_badly_says_how(name: str, verdict: str, text: str) -> None:
    found = asked(name)
    assert found.verdict == verdict and text in found.text
    assert name != "crashes" or "before it crashed" in found.output


def test_question_that_is_refused_has_the_library_s_message() -> None:
    found = asked("is_refused", ACL_BACKEND="sim", ACL_SIM_FAULTS="aclrtMalloc:code=207001")
    assert found.verdict == "refused" and "aclrtMalloc" in found.text and found.facts["code"] == 207001
    assert asked("is_refused", ACL_BACKEND="sim").verdict == "ok"


def test_question_with_a_long_answer_is_read_whole() -> None:
    told: list[str] = []
    found = ask(Question("much", "deep_questions:says_much", 60, ""), 60, told.append)
    assert found.verdict == "bad" and len(found.facts["many"]) == 3000 and len(told) == 3000
    assert 0 < len(found.output) <= 2000


def deep(folder: Path, *arguments: str, **environment: str) -> tuple[int, dict[str, Any], str]:
    """Run the command; return its exit status, its JSON and its progress output."""
    done = run_child("-m", "aclpool", "doctor", "--deep", "--json", "--output", str(folder), *arguments,
                     **{"ACL_BACKEND": "sim", **environment})      # type: ignore[arg-type]
    return done.returncode, json.loads(done.stdout), done.stderr


def test_rehearsal_answers_every_question_and_writes_its_files(tmp_path: Path) -> None:
    names = [question.name for question in report.QUESTIONS if question.name != "probes"]
    code, found, told = deep(tmp_path, "--only", ",".join(names))
    answers = found["answers"]
    assert {name: row["verdict"] for name, row in answers.items()} == dict.fromkeys(names, "ok"), answers
    assert code == 0 and found["rehearsal"] is True
    text = (tmp_path / "report.txt").read_text()
    assert "REHEARSAL on the simulator" in text and all(row["text"] in text for row in answers.values())
    assert json.loads((tmp_path / "report.json").read_text())["answers"].keys() == answers.keys()
    assert set(json.loads((tmp_path / "latency.json").read_text())) <= set(PRICES)
    assert load_prices(tmp_path / "latency.json")["aclrtMapMem"] != PRICES["aclrtMapMem"]
    assert f"[{len(names)}/{len(names)}] demo: ok" in told
    assert answers["streams"]["facts"]["made, run on made"] == 1
    assert answers["chip"]["facts"]["chips"]["Ascend310B1"].startswith("refused")
    assert answers["exits"]["facts"]["SIGTERM"]["status"] == -15
    assert answers["captures"]["facts"]["replays"] == 2
    assert set(answers["cores"]["facts"]) == {"1", "2", "4"}
    assert answers["demo"]["facts"]["acl.Pool"]["device_mib"] >= answers["demo"]["facts"]["live_mib"]


def test_refused_runtime_call_affects_only_the_questions_that_need_the_call(tmp_path: Path) -> None:
    _, found, _ = deep(tmp_path, "--only", "addresses,granularity,prices,captures",
                       ACL_SIM_FAULTS="aclrtMapMem:code=207000")
    verdicts = {name: row["verdict"] for name, row in found["answers"].items()}
    assert verdicts["addresses"] == "refused" and verdicts["captures"] == "ok"
    assert verdicts["granularity"] == verdicts["prices"] == "note"
    assert "aclrtMapMem returned 207000" in found["answers"]["addresses"]["text"]
    assert "aclrtMallocPhysical" in json.loads((tmp_path / "latency.json").read_text())


def test_chip_without_virtual_memory_is_reported(tmp_path: Path) -> None:
    _, found, _ = deep(tmp_path, "--only", "addresses,chip", ACL_SIM_SOC="Ascend910A")
    assert found["answers"]["addresses"]["verdict"] == "refused"
    assert found["answers"]["chip"]["facts"]["virtual memory"].startswith("refused")


def test_library_by_path_is_the_one_that_is_asked(tmp_path: Path) -> None:
    shutil.copytree(acl.sim.library_dir(), tmp_path / "lib")
    library = tmp_path / "lib/libascendcl.so"
    code, found, _ = deep(tmp_path / "out", "--only", "granularity", "--library", str(library))
    assert code == 0 and found["answers"]["machine"]["facts"]["library"] == str(library)


@pytest.mark.parametrize("arguments, text", [
    (("--only", "prices,colour"), "--only has colour; expected some of machine, addresses"),
    (("--minutes", "0"), "--minutes must be above 0, not 0"),
    (("--library", "/nowhere/libascendcl.so"), "--library: /nowhere/libascendcl.so is not a file")])
def test_impossible_arguments_of_doctor_are_refused_by_name(
    tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    done = run_child("-m", "aclpool", "doctor", "--deep", "--output", str(tmp_path), *arguments)
    assert done.returncode == 2 and text in done.stderr and done.stdout == ""


def test_options_of_the_questions_without_deep_are_refused() -> None:
    done = run_child("-m", "aclpool", "doctor", "--only", "prices", "--minutes", "3")
    assert (done.returncode, done.stdout) == (2, "") and "--only, --minutes without --deep" in done.stderr


def test_questions_after_the_time_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "ask", lambda question, limit, say: Answer("ok", f"{limit:.0f} s"))
    questions = report.QUESTIONS[:3]
    clock = iter([0.0, 0.0, 599.5, 599.5])
    monkeypatch.setattr(report.time, "monotonic", lambda: next(clock))
    found = report.examine(questions, 600, silent)
    assert [answer.verdict for answer in found.values()] == ["ok", "skipped", "skipped"]


def test_question_gets_no_more_time_than_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(report, "ask", lambda question, limit, say: limits.append(limit) or Answer("ok", ""))
    clock = iter([0.0, 0.0, 590.0])
    monkeypatch.setattr(report.time, "monotonic", lambda: next(clock))
    report.examine(report.QUESTIONS[:2], 600, silent)
    assert limits == [report.QUESTIONS[0].limit, 10.0]


@pytest.mark.parametrize("verdict, code", [("bad", 1), ("hung", 1), ("crashed", 1), ("failed", 1), ("refused", 0),
                                           ("absent", 0), ("note", 0)])
def test_exit_status_follows_the_verdicts(tmp_path: Path, verdict: str, code: int) -> None:
    answers = {"machine": Answer("ok", "", {"backend": "cann"}), "prices": Answer(verdict, "", output="a trace")}
    assert report.conclude(report.QUESTIONS, answers, tmp_path, 1.0, True) == code
    text = (tmp_path / "report.txt").read_text()
    assert "REHEARSAL" not in text and "| a trace" in text


def test_second_address_with_other_bytes_is_reported_as_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def two_blocks(size: int) -> Iterator[list[int]]:
        with acl.Buffer(size) as first, acl.Buffer(size) as second:
            yield [first.address, second.address]

    monkeypatch.setattr(memory, "two_addresses", two_blocks)
    monkeypatch.setattr(memory.rt, "unmap_mem", lambda address: 0)
    found = memory.ask_addresses(silent)
    assert found.verdict == "bad" and "copies: OTHER BYTES" in found.text and "Pool(views=False)" in found.text


def test_allocator_asked_for_another_stream_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    right = order.work
    made: list[acl.Stream] = []

    def work(stream: acl.Stream) -> None:
        """Run work for the default stream on the last other stream instead, which the question must notice."""
        if stream.handle:
            made[:] = [stream]
        right(made[0] if made and not stream.handle else stream)

    monkeypatch.setattr(order, "work", work)
    found = order.ask_streams(silent)
    assert found.verdict == "bad" and "by work on another stream: made, run on default" in found.text


def test_exit_with_another_status_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "python_command", lambda module, how: ["sh", "-c", "exit 5"])
    found = order.ask_exits(silent)
    assert found.verdict == "bad" and "unexpected: closed, open, _exit, exception, SIGTERM" in found.text


def test_capture_with_wrong_bytes_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order.mdl, "ri_execute", lambda graph, timeout: 0)
    assert order.ask_captures(silent).verdict == "bad"


def test_recorded_memory_demand_is_replayed_block_by_block() -> None:
    live: dict[int, int] = {}
    freed: list[int] = []

    def alloc(size: int) -> int:
        live[len(live)] = size
        return len(live) - 1

    assert demand.peak([10, 20, 0, 5, -1]) == 30
    with acl.Device(0):
        demand.play([10, 20, 0, 5, -1], alloc, freed.append)
    assert freed == [0, 1, 2, 3, 4, 5] and list(live.values()) == [10, 20, 5] * 2


def test_probes_give_the_answers_of_the_golden_file() -> None:
    library = Path(acl.sim.library_dir())
    found = dict(probing.answers_of("probes.txt", library, "malloc_zero"))
    assert found == {"malloc_zero": probing.golden("golden.txt")["malloc_zero"][1]}


def test_probes_stop_when_their_time_is_over() -> None:
    started = time.monotonic()
    assert len(list(probing.answers_of("probes3.txt", Path(acl.sim.library_dir()), seconds=0))) == 1
    assert time.monotonic() - started < 60


def test_difference_becomes_a_patch_that_applies(tmp_path: Path) -> None:
    place = tmp_path / "acl/tools/doctor/probes"
    shutil.copytree(probing.FOLDER, place)
    text = probing.patch("golden.txt", {"malloc_zero": "(0, 1)"})
    subprocess.run(["patch", "-p1"], input=text, text=True, cwd=tmp_path, check=True, capture_output=True)
    before, after = ((folder / "golden.txt").read_text().splitlines() for folder in (probing.FOLDER, place))
    assert [(a, b) for a, b in zip(before, after, strict=True) if a != b] == [
        ("must malloc_zero: (100000, 1)", "must malloc_zero: (0, 1)")]
    assert probing.patch("golden.txt", {}) == ""


def ask_few(monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, str]]) -> Answer:
    """Return the answer of `ask_probes` when the library's calls give `answers` in this order."""
    replies = iter(answers)
    monkeypatch.setattr(probing, "SCRIPTS", {"probes.txt": "golden.txt"})
    monkeypatch.setattr(probing, "answers_of", lambda *arguments, **options: iter(next(replies).items()))
    return probing.ask_probes(silent)


def test_probe_that_differs_twice_is_in_the_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask_few(monkeypatch, [{"malloc_zero": "(0, 1)"}, {"malloc_zero": "(0, 1)"}])
    assert found.verdict == "note" and "(malloc_zero)" in found.text
    assert "+must malloc_zero: (0, 1)\n" in found.files["probes.patch"]


def test_probe_that_differs_once_is_not_in_the_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ask_few(monkeypatch, [{"malloc_zero": "(0, 1)"}, {"malloc_zero": "(100000, 1)"}])
    assert found.facts["differ"]["must"] == [] and found.files["probes.patch"] == ""


def test_probes_that_cannot_run_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask_few(monkeypatch, [{}]).verdict == "failed"
