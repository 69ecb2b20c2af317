"""`.ci/run --list`: which lanes a run takes, by what the change touches."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.documents import ROOT

RUN = (ROOT / ".ci/run").read_text(encoding="utf-8")
#: The lanes that depend on the change, and the files on which they depend.
TOUCHED = {lane: paths.split() for lane, paths in re.findall(r"^    \[(\w+)\]='([^']*)'", RUN, re.M)}
DAYS_AGO, HOURS_AGO, NOW = "2026-01-01T00:00:00Z", "2026-01-03T08:00:00Z", "2026-01-03T10:00:00Z"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def commit(folder: Path, moment: str) -> None:
    """Commit all files of a folder."""
    own = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment, "GIT_CONFIG_GLOBAL": os.devnull}
    for command in (["init", "-q"], ["add", "-A"],
                    ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "a: b"]):
        subprocess.run(["git", *command], cwd=folder, env={**os.environ, **own}, check=True)


def lanes(folder: Path, *options: str) -> set[str]:
    """Return the lanes that a run would take."""
    done = subprocess.run(["bash", ".ci/run", "--list", *options], cwd=folder, text=True, capture_output=True,
                          env={**os.environ, "PYTHON": sys.executable}, check=True)
    return set(done.stdout.split())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in (".ci/run", "tests/mutations/changes.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name, before, after, expected", [
    ("acl/core/lock.h", "int a;\n", "int b;\n", {"arm", "gcc10", "clang"}),
    ("acl/core/lock.h", "int a;\n", "int a; /* b */\n", set()),
    ("acl/sim/memory/ipc.c", "int a;\n", "int b;\n", {"page64k"}),
    ("acl/runtime/_buffer.pyx", '"""A."""\n', '"""B."""\n', {"docs"}),
    ("acl/sim/streams/stream.c", "int a;\n", "int b;\n", set()),
])
def test_lane_runs_if_the_change_touches_code_of_its_files(
        name: str, before: str, after: str, expected: set[str], project: Path) -> None:
    file = project / name
    file.parent.mkdir(parents=True)
    file.write_text(before)
    commit(project, DAYS_AGO)
    file.write_text(after)
    commit(project, HOURS_AGO)
    commit(project, NOW)
    always = lanes(project, "--full") - set(TOUCHED) - {"ray", "soak", "debug", "pythons"}
    assert lanes(project) == always | expected


def test_lanes_of_history_that_is_too_short_are_those_of_any_change_and_docs(project: Path) -> None:
    commit(project, NOW)
    assert lanes(project) & set(TOUCHED) == {"docs"}


@pytest.mark.parametrize("lane, path", [(lane, path) for lane, paths in TOUCHED.items() for path in paths])
def test_path_on_which_a_lane_depends_exists(lane: str, path: str) -> None:
    assert any(ROOT.glob(path))


def test_contributing_lists_every_lane() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## What runs when")[2]
    table = "\n".join(line for line in table.splitlines() if line.startswith("|"))
    found = set(re.findall(r"^lane_(\w+)\(\)", RUN, re.M))
    assert found - set(re.findall(r"`(\w+)`", table)) == set()
