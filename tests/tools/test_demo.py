"""The command `aclpool demo`: its report, and that it notices a wrong output."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.child import run_python

import acl
from acl.tools import demo
from acl.tools.demo import measure as demo_run
from acl.tools.demo import models as demo_models
from acl.tools.demo import report as demo_report
from acl.tools.numpy_ops import evaluate


def options(tmp_path: Path, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return parser.parse_args(["--output", str(tmp_path / "report.html"), *arguments])


def test_demo_allocators_give_equal_results_and_the_report_needs_no_other_file(tmp_path, capsys):
    assert demo.run(options(tmp_path, "--requests", "12", "--streams", "2", "--json", "-")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["way"] for row in found["ways"]] == ["none", "python", "pool"]
    assert all(row["requests"] == 12 and row["wrong_outputs"] == 0 for row in found["ways"])
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 3 and "prefers-color-scheme: dark" in page
    assert not re.search(r"https?://|<script|<link|src=|@import", page)


def test_demo_command_prints_its_table(tmp_path):
    done = run_python(
        "import sys; from acl.tools.cli import main; sys.exit(main(sys.argv[1:] + ['demo', '--requests', '8', "
        f"'--streams', '3', '--output', {str(tmp_path / 'r.html')!r}]))", ACL_BACKEND="")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^acl\.Pool .* 0$", done.stdout, re.MULTILINE)
    assert "8/8" in done.stderr and "report:" in done.stderr


def test_demo_with_a_wrong_output_fails(tmp_path, capsys, monkeypatch):
    right = demo_models.expected

    def wrong(models, work):
        judge, found = right(models, work)
        found[3][0] = found[3][0] + 0.01
        return judge, found

    monkeypatch.setattr(demo_models, "expected", wrong)
    assert demo.run(options(tmp_path, "--requests", "6", "--streams", "2")) == 1
    told = capsys.readouterr()
    assert "WRONG, pool: request 3, detector" in told.err
    assert "3 of 3 x 6 requests had wrong outputs" in told.out


@pytest.mark.parametrize(("name", "number", "most"), [
    ("requests", 0, 1_000_000), ("streams", 0, 64), ("streams", 65, 64), ("streams", -2, 64),
])
def test_demo_refuses_zero_and_too_large_counts(tmp_path, capsys, name, number, most):
    assert demo.run(options(tmp_path, f"--{name}", str(number))) == 2
    assert f"--{name} must be from 1 to {most}, not {number}" in capsys.readouterr().err


def test_the_pool_makes_fewer_device_mallocs_and_wastes_less(sim):
    models = {"encoder": demo_models.encoder(), "detector": demo_models.detector()}
    work = list(demo_models.requests(40, seed=3))
    expected = [evaluate(models[r.model], *r.inputs) for r in work]
    ways = {way: demo_run.measure(way, models, work, expected, 2, lambda done: None)
            for way in ("python", "pool")}
    assert not any(one.wrong for one in ways.values())
    assert ways["pool"].device_calls < ways["python"].device_calls / 2
    assert ways["pool"].waste < ways["python"].waste
    assert ways["pool"].requested_peak == ways["python"].requested_peak
    # Each block costs three calls: alloc, get_addr_from_block and free.
    assert ways["pool"].callbacks == ways["python"].callbacks and ways["pool"].callbacks % 3 == 0


def test_numpy_and_onnxruntime_agree_on_the_models():
    pytest.importorskip("onnxruntime")
    models = {"encoder": demo_models.encoder(), "detector": demo_models.detector()}
    work = list(demo_models.requests(6, seed=1))
    judge, found = demo_models.expected(models, work)
    assert judge.startswith("ONNX Runtime")
    for request, outputs in zip(work, found, strict=True):
        for mine, theirs in zip(evaluate(models[request.model], *request.inputs), outputs, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)


def test_a_python_allocator_rounds_to_powers_of_two_and_uses_blocks_again(stream):
    allocator = demo_run.PythonAllocator()
    first = allocator.alloc(0, 5000)
    allocator.free(0, first)
    assert allocator.alloc(0, 8192) == first
    allocator.free(0, first)
    allocator.close()


def test_durations_are_readable():
    assert [demo_report.duration(ns) for ns in (22, 2200, 3.5e6)] == ["22 ns", "2.2 us", "3.5 ms"]


def test_watch_refuses_an_object_that_is_not_a_stream():
    from acl.tools.demo._watch import Tally, Watch

    with pytest.raises(acl.AclError):
        Watch(0, 1, 1, 1, 1, Tally())
