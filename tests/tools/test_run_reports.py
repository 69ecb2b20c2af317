"""`aclpool run --pool`: out-of-memory reports of a pyACL program on standard error, and not too many."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.child import run_child

import acl
from acl.tools import run_reports
from acl.tools.onnx_writer import Builder
from acl.tools.run_reports import Reports, told_after

MIB = 1 << 20
PROGRAM = """
import sys
import acl
acl.init(); acl.rt.set_device(0)
stream, _ = acl.rt.create_stream()
model, _ = acl.mdl.load_from_file(sys.argv[1])
rows = 1 << 20
buffers, sets = [], []
for size in (16 * rows, 12 * rows):
    one = acl.mdl.create_dataset()
    buffers.append(acl.create_data_buffer(acl.rt.malloc(size, 0)[0], size))
    acl.mdl.add_dataset_buffer(one, buffers[-1])
    sets.append(one)
shape = acl.create_tensor_desc(0, [rows, 4], 2)
acl.mdl.set_dataset_tensor_desc(sets[0], shape, 0)
for _ in range(3):
    print(acl.mdl.execute_async(model, *sets, stream) or acl.rt.synchronize_stream(stream))
    print("after the call", file=sys.stderr, flush=True)
"""


@pytest.mark.subprocess_heavy
def test_failed_run_of_a_pyacl_program_is_followed_by_its_report(tmp_path: Path) -> None:
    made = Builder()
    x = made.input("x", "float32", ["n", 4])
    weight = made.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    made.output(made.add("Relu", made.add("MatMul", x, weight)), "float32", ["n", 3])
    (tmp_path / "model.om").write_bytes(made.to_bytes({}))
    (tmp_path / "program.py").write_text(PROGRAM)
    arguments = ("-m", "aclpool", "run", str(tmp_path / "program.py"), str(tmp_path / "model.om"))
    limited = run_child(*arguments, "--pool-limit", "2MiB")
    codes = limited.stdout.splitlines()[:3]
    assert "0" not in codes and limited.returncode == 0, limited.stderr
    report, _, rest = limited.stderr.partition("after the call\n")
    assert report.startswith("out of memory: 12.00 MiB") and "the pool's limit is in the way" in report
    assert rest.splitlines()[:2] == ["after the call"] * 2
    assert rest.splitlines()[2].startswith("out of memory: ") and rest.endswith("were kept back\n")
    wide = run_child(*arguments, "--pool")
    assert wide.stdout.splitlines()[:3] == ["0", "0", "0"]
    assert wide.stderr == "after the call\n" * 3


@pytest.fixture
def pool() -> Any:
    with acl.Pool(0, "4MiB", name="small") as made:
        yield made


def refuse(pool: acl.Pool, tag: str | None = None) -> None:
    """Make an allocation fail, which makes one out-of-memory report."""
    with pytest.raises(acl.OutOfMemoryError):
        pool.alloc(64 * MIB, tag=tag)


def test_report_of_one_pool_and_tag_is_printed_once_in_ten_seconds(
        pool: acl.Pool, capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    reports = Reports(lambda: [pool], lambda: now[0])
    refuse(pool)
    reports.look()
    assert capsys.readouterr().err.count("out of memory: ") == 1
    refuse(pool)
    now[0] += 9.9
    reports.look()
    assert capsys.readouterr().err == ""
    refuse(pool, "kv")
    reports.look()
    assert "for 'kv' could not be had" in capsys.readouterr().err
    now[0] += 0.2
    refuse(pool)
    reports.look()
    assert capsys.readouterr().err.endswith("\n  1 more like it since the last report\n")
    refuse(pool)
    reports.end()
    assert capsys.readouterr().err == "out of memory: 1 more reports of small were kept back\n"
    reports.end()
    assert capsys.readouterr().err == ""


def test_pool_whose_reports_cannot_be_read_does_not_stop_the_search_for_reports(
        pool: acl.Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    closed = acl.Pool(0, name="closed")
    closed.close()
    refuse(pool)

    def ooms(one: acl.Pool) -> Any:
        if one is closed:
            raise acl.AclError(507899, "aclrtGetMemInfo", "the device is lost")
        return real(one)

    from acl.inside import _books

    real = _books.ooms
    monkeypatch.setattr(_books, "ooms", ooms)
    Reports(lambda: [closed, pool]).look()
    assert "of small" in capsys.readouterr().err


def test_reports_follow_only_failed_calls_and_all_functions_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [0, (5, 0), None, 107002, (None, 107002)]
    module = ModuleType("mdl")
    module.execute = lambda: answers[0]                             # type: ignore[attr-defined]
    monkeypatch.setattr(acl, "mdl", module)
    looks: list[int] = []
    monkeypatch.setattr(run_reports.Reports, "look", lambda self: looks.append(1))
    before, real = module.execute, acl.rt.synchronize_stream        # type: ignore[attr-defined]
    with told_after(Reports(list)):
        assert acl.rt.synchronize_stream is not real
        for expected in (0, 0, 0, 1, 2):
            module.execute()                                        # type: ignore[attr-defined]
            assert len(looks) == expected
            answers.pop(0)
    assert (module.execute, acl.rt.synchronize_stream) == (before, real)    # type: ignore[attr-defined]
    assert len(looks) == 3
