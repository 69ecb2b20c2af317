"""The commands of docs/ci-recipes.md that need no network, in a folder with only a small project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.child import child_environment

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/ci-recipes.md"

pytestmark = [pytest.mark.subprocess_heavy,
              pytest.mark.skipif(shutil.which("cmake") is None, reason="wants cmake")]


def recipe(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def steps(text: str) -> list[str]:
    """Return the commands of a job's steps (GitHub), each for a new shell."""
    found = re.findall(r"^      - run: (?:\|\n((?: {10}.*\n)+)|(.+)\n)", text, re.M)
    return [textwrap.dedent(block) or line for block, line in found]


def script(text: str) -> list[str]:
    """Return the lines of a job's script (GitLab), all for one shell."""
    block = re.search(r"^  script:\n((?:    - .*\n)+)", text, re.M)
    assert block is not None
    return [line.removeprefix("    - ") for line in block[1].splitlines()]


def project(folder: Path) -> Path:
    """Return the folder of a copy of the small project."""
    return Path(shutil.copytree(HERE / "cann/ci", folder / "project"))


def run(commands: list[str], folder: Path) -> tuple[str | None, str]:
    """Run the commands one after another; return the first that fails, or None, and all output."""
    kept = {name: value for name, value in child_environment().items()
            if not name.startswith(("ACL_", "ASCEND", "LD_LIBRARY_PATH"))}
    command = folder.parent / "bin"
    command.mkdir(exist_ok=True)
    (command / "aclpool").write_text(f'#!/bin/sh\nexec {sys.executable} -m acl.tools.cli "$@"\n')
    (command / "aclpool").chmod(0o755)
    (command / "python").unlink(missing_ok=True)
    (command / "python").symlink_to(sys.executable)
    env = {**kept, "RUNNER_TEMP": str(folder.parent), "PATH": f"{command}{os.pathsep}{kept['PATH']}"}
    written = ""
    for text in commands:
        done = subprocess.run(["bash", "-e", "-c", text], cwd=folder, env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)
        written += done.stdout
        if done.returncode != 0:
            return text, written
    return None, written


def offline(commands: list[str]) -> list[str]:
    return [text for text in commands if not text.startswith("pip install")]


def test_github_recipe_passes_and_leaves_its_reports(tmp_path: Path) -> None:
    commands = steps(recipe("github"))
    assert len(commands) == 8 and sum("pip install" in text for text in commands) == 1
    folder = project(tmp_path)
    failed, written = run(offline(commands), folder)
    assert failed is None, f"{failed}\n{written}"
    assert json.loads((folder / "check.sarif").read_text())["runs"][0]["results"] == []
    counts = json.loads((folder / "sweep.json").read_text())["counts"]
    assert counts["failed"] > 5 and counts["crashed"] == counts["hung"] == counts["leaked"] == 0
    assert re.search(r"^\d+ of \d+ functions were called$", written, re.M) and "2 passed" in written


def test_gitlab_recipe_passes_in_one_shell(tmp_path: Path) -> None:
    folder = project(tmp_path)
    lines = script(recipe("gitlab"))
    assert lines[-1] == "aclpool sim coverage seen.%p"
    quick = [line for line in lines if "--sweep" not in line]       # tested above
    failed, written = run(["\n".join(quick)], folder)
    assert failed is None, written
    assert json.loads((folder / "check.json").read_text()) == {"reports": []}


@pytest.mark.parametrize(("old", "new", "step"), [
    ("        good &= worked(aclrtFree(device)", "        good &= worked(ACL_SUCCESS", "aclpool sim check"),
    ("    if (stream != NULL) {", "    if (good) {", "aclpool sim faults --sweep"),
])
def test_github_recipe_fails_at_the_step_that_finds_the_mistake(tmp_path: Path, old: str, new: str, step: str) -> None:
    folder = project(tmp_path)
    source = (folder / "app.c").read_text()
    assert source.count(old) == 1
    (folder / "app.c").write_text(source.replace(old, new))
    failed, written = run(offline(steps(recipe("github"))), folder)
    assert failed is not None and failed.startswith(step), written
