"""`aclpool compare`: noise is not a difference, a real difference is reported, incomparable files are refused."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.child import run_child

from acl.tools import cli
from acl.tools.compare import NotComparable, compared, grouped, load_document, splits

Document = dict[str, Any]


def document(chance: random.Random, rows: int = 40, rounds: int = 5, noise: float = 0.05, **factors: float) -> Document:
    """Return a run with noise: one factor for each round, one for each row in a round, and some large outliers."""
    moods = [chance.gauss(0, noise / 2) for _ in range(rounds)]
    results = []
    for number in range(rows):
        name = f"W{number}"
        level = 5.0 * (number + 1) * factors.get(name, 1.0)
        samples = []
        for mood in moods:
            own = chance.gauss(0, noise) + (chance.expovariate(2) if chance.random() < 0.01 else 0)
            samples.append([level * 2.718 ** (mood + own + (chance.expovariate(2) if chance.random() < 0.1 else 0))
                            for _ in range(3)])
        results.append({"workload": name, "allocator": "aclpool", "samples": samples, "overlap": None, "failures": 0,
                        "floor_around_ns": [[3.0, 3.0]] * rounds, "reserved_ratio": 1.02})
    return {"version": 2, "kind": "aclpool bench", "quick": False,
            "effort": {"run_ns": 1}, "machine": {"backend": "sim"}, "results": results,
            "rows": {f"{row['workload']}/aclpool": row for row in results}}


@pytest.mark.parametrize("rounds", [4, 5])
def test_comparison_of_equal_states_finds_no_difference_in_95_of_100_runs(rounds: int) -> None:
    chance = random.Random(1)
    same = sum(compared(document(chance, 20, rounds), document(chance, 20, rounds)).same for _ in range(100))
    assert same >= 95


def test_comparison_reports_only_the_row_that_is_slower() -> None:
    chance = random.Random(3)
    alone = 0
    for _ in range(10):
        found = compared(document(chance, 20, noise=0.02), document(chance, 20, noise=0.02, W7=1.5))
        alone += list(found.slower) == ["W7/aclpool"]
        for factor, low, high in found.slower.values():
            assert low <= factor <= high
    assert alone >= 8


def test_comparison_does_not_report_a_difference_below_the_threshold_or_noise() -> None:
    chance = random.Random(4)
    old, new = document(chance, noise=0.001), document(chance, noise=0.001, W7=1.08)
    assert compared(old, new, 1.03).slower
    assert compared(old, new, 1.10).same
    for row in new["results"]:
        row["floor_around_ns"] = [[3.2, 3.2]] * 5
    assert compared(old, new, 1.03).same


def files(folder: Path, old: Document, new: Document) -> list[str]:
    names = []
    for name, content in (("a.json", old), ("b.json", new)):
        (folder / name).write_text(json.dumps({key: value for key, value in content.items() if key != "rows"}))
        names.append(str(folder / name))
    return names


def test_comparison_fails_and_names_a_row_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = document(random.Random(5), rows=3)
    new = copy.deepcopy(old)
    del new["results"][1]
    assert cli.main(["compare", *files(tmp_path, old, new)]) == 1
    assert capsys.readouterr().out.splitlines() == ["vanished  W1/aclpool", "no difference in 2 of 2 rows"]


def test_comparison_fails_if_a_row_needs_more_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = document(random.Random(6), rows=3)
    new = copy.deepcopy(old)
    new["results"][2]["reserved_ratio"] = 1.5
    assert cli.main(["compare", *files(tmp_path, old, new)]) == 1
    assert "reserved over live from 1.020 to 1.500  W2/aclpool" in capsys.readouterr().out
    assert cli.main(["compare", *files(tmp_path, new, old)]) == 0


@pytest.mark.parametrize(("change", "why"), [
    ({"overlap": 0.5}, "its threads ran together for 50% of the time"),
    ({"samples": [[1.0]] * 3}, "measured in 3 rounds; 4 are needed"),
    ({"failures": 2}, "2 allocations failed"),
])
def test_an_unsure_row_is_not_compared(change: dict[str, Any], why: str) -> None:
    old = document(random.Random(7), rows=2)
    new = copy.deepcopy(old)
    new["results"][0].update(change)
    new["rows"]["W0/aclpool"].update(change)
    found = compared(old, new)
    assert found.skipped == {"W0/aclpool": why}
    assert found.rows == 1


@pytest.mark.parametrize(("key", "value", "complaint"), [
    ("quick", True, "quick against full"), ("effort", {"run_ns": 2}, "runs of different length"),
    ("machine", {"backend": "cann"}, "a simulator against a device"), ("results", [], "no row is in both files"),
    ("version", 1, "not a file of `aclpool bench --json` of this version"),
])
def test_files_measured_in_different_ways_are_refused(
    key: str, value: Any, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = document(random.Random(8), rows=2)
    assert cli.main(["compare", *files(tmp_path, old, {**old, key: value})]) == 2
    output = capsys.readouterr()
    assert complaint in output.err
    assert output.out == ""


def saved(chance: random.Random, **factors: float) -> Document:
    """Return the rows of `document` as pytest-benchmark saves them: in seconds, each round by its own process."""
    return {"version": "5.0", "benchmarks": [
        {"fullname": f"bench.py::{row['workload']}",
         "extra_info": {"allocator": "aclpool" if "7" in row["workload"] else "x"},
         "stats": {"data": [min(each) / 1e9 for each in row["samples"]]}}
        for row in document(chance, 20, noise=0.02, **factors)["results"]]}


def test_files_of_pytest_benchmark_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(11)
    old, same, slower = saved(chance), saved(chance), saved(chance, W7=1.5)
    assert cli.main(["compare", *files(tmp_path, old, same)]) == 0
    assert "no difference in 20 of 20 rows" in capsys.readouterr().out
    assert cli.main(["compare", *files(tmp_path, old, slower)]) == 1
    assert "bench.py::W7" in capsys.readouterr().out
    assert cli.main(["compare", *files(tmp_path, old, slower), "--allocator", "x"]) == 0


def test_pytest_benchmark_file_without_rounds_is_reported(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = saved(random.Random(12))
    old["benchmarks"] = old["benchmarks"][:2]
    del old["benchmarks"][0]["stats"]["data"]
    assert cli.main(["compare", *files(tmp_path, old, old)]) == 0
    assert "not compared  bench.py::W0: saved without the times of its rounds" in capsys.readouterr().out


def test_a_hundred_thousand_rounds_are_compared_as_twenty() -> None:
    times = [float(number) for number in range(1001)]
    assert [time for group in grouped(times) for time in group] == times
    assert len(grouped(times)) == 20
    assert grouped([]) == [] and grouped([3.0, 4.0]) == [[3.0], [4.0]]


def test_a_file_of_bench_against_one_of_pytest_benchmark_is_refused(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chance = random.Random(13)
    assert cli.main(["compare", *files(tmp_path, document(chance), saved(chance))]) == 2
    assert "files of different programs (aclpool bench, pytest-benchmark)" in capsys.readouterr().err


def test_files_saved_by_our_pytest_benchmark_cases_are_compared(tmp_path: Path) -> None:
    cases = str(Path(__file__).parents[2] / "bench/bench_alloc.py")
    for name in ("a", "b"):
        done = run_child("-m", "pytest", "-q", cases, "-k", "W1/floor", f"--benchmark-storage={tmp_path}",
                         f"--benchmark-save={name}", "-p", "no:cacheprovider")
        assert done.returncode == 0, done.stdout
    first, second = sorted(tmp_path.glob("*/*.json"))
    found = compared(load_document(first), load_document(second))
    assert (found.rows, found.skipped, found.subjects) == (1, {}, [])


def test_comparison_reports_another_version_or_build_of_an_allocator() -> None:
    old = document(random.Random(14), rows=2)
    new = copy.deepcopy(old)
    for each, build in ((old, "release"), (new, "debug")):
        each["rows"]["W1/aclpool"]["about"] = {"version": "0.1.0", "build": build, "file": "/a/file"}
    assert compared(old, new).subjects == ["aclpool 0.1.0 release is now aclpool 0.1.0 debug"]
    assert compared(old, old).subjects == []


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 2}',
                                     '{"version": 2, "results": [{"samples": 1}]}',
                                     '{"version": 2, "results": [{"samples": [1], "workload": "W", "allocator": ""}]}',
                                     '{"benchmarks": null}', '{"benchmarks": [1]}',
                                     '{"benchmarks": [{"fullname": "a"}]}',
                                     '{"benchmarks": [{"fullname": "a", "extra_info": {"samples": [[-1]]}}]}',
                                     '{"benchmarks": [{"fullname": "a", "extra_info": {"samples": [[]]}}]}'])
def test_comparison_refuses_a_file_of_another_format(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(NotComparable, match="not a file of"):
        load_document(path)


def test_a_missing_file_and_a_threshold_below_one_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "/no/a.json", "/no/b.json"]) == 2
    assert "/no/a.json" in capsys.readouterr().err
    assert cli.main(["compare", "/no/a.json", "/no/b.json", "--threshold", "0.5"]) == 2
    assert "--threshold: expected a factor of at least 1" in capsys.readouterr().err


def test_rounds_are_dealt_out_in_every_way_or_in_many() -> None:
    assert len(set(splits(4, 4))) == 70
    many = list(splits(10, 10))
    assert len(many) == 1000 and many[0] == tuple(range(10))
