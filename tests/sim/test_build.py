"""`acl/sim/build.py` on a tree of three files: the environment's compiler and flags, and what is compiled again."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BUILD = Path(__file__).parents[2] / "acl/sim/build.py"
ONE = """
#include "base/one.h"
__attribute__((visibility("default"))) int one(void);
int one(void) { return FROM_HEADER + FROM_CC + FROM_CFLAGS; }
"""
OTHER = """
__attribute__((visibility("default"))) int other(void);
int other(void) { return 0; }
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with spaces in its name, and an environment without flags."""
    made = tmp_path / "a tree/acl/sim"
    for name, text in (("base/one.h", "enum { FROM_HEADER = 1 };\n"), ("base/one.c", ONE),
                       ("generated/exports_op_compiler.c", OTHER)):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    shutil.copy(BUILD, made)
    monkeypatch.setenv("CC", "gcc -DFROM_CC=10")
    monkeypatch.setenv("CFLAGS", "-DFROM_CFLAGS=100")
    monkeypatch.delenv("LDFLAGS", raising=False)
    monkeypatch.delenv("MAX_JOBS", raising=False)
    return made


def loaded(tree: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("built_by_test", tree / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(out: Path) -> str:
    """Call `one` in another process: the library has the name of the simulator's."""
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).one())"
    return subprocess.check_output([sys.executable, "-c", code, out / "libascendcl.so"], text=True)


def objects(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.rglob("*.o")}


def test_build_obeys_words_of_cc_and_flags(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LDFLAGS", "-Wl,-rpath,/of/ldflags")
    out = loaded(tree).build(tree / "out")
    assert answer(out) == "111\n"
    assert b"/of/ldflags" in (out / "libascendcl.so").read_bytes()


def test_build_in_a_path_with_spaces_compiles_only_what_changed(tree: Path) -> None:
    build = loaded(tree).build
    first = objects(build(tree / "out"))
    assert len(first) == 2
    assert objects(build(tree / "out")) == first
    later = max(first.values()) + 10**9
    os.utime(tree / "base/one.h", ns=(later, later))
    again = objects(build(tree / "out"))
    assert [name for name in first if again[name] != first[name]] == ["one.o"]


def test_build_with_other_flags_compiles_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = loaded(tree).build
    build(tree / "out")
    monkeypatch.setenv("CFLAGS", "-DFROM_CFLAGS=200")
    assert answer(build(tree / "out")) == "211\n"


def test_build_runs_max_jobs_compilers(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = loaded(tree)
    assert module.cores() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("MAX_JOBS", "3")
    assert module.cores() == 3


def test_build_passes_a_compilers_messages_on(tree: Path) -> None:
    (tree / "base/one.c").write_text("int one(void) { return missing; }\n")
    with pytest.raises(RuntimeError, match="missing"):
        loaded(tree).build(tree / "out")
