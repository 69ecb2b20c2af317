"""The programs in README and docs run unchanged, and the files and functions that they name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.documents import ROOT, TICKED, Snippet, broken_links, missing_files, pages, snippets

from acl.tools.top.text import heading

LIFE = ROOT / "docs/life_of_an_allocation.md"
in_clone = pytest.mark.skipif(not (ROOT / "acl/core").is_dir(), reason="the sources are not beside the tests")


def block_id(snippet: Snippet) -> str:
    """Return a block's place and the packages that it needs, by which `.ci/run` selects blocks."""
    return " needs ".join([snippet.place, *snippet.needs])


@pytest.mark.parametrize("snippet", snippets(), ids=block_id)
def test_snippet_runs(snippet: Snippet, tmp_path: Path) -> None:
    for package in snippet.needs:
        if find_spec(package) is None:
            pytest.skip(f"wants {package}")
    done = subprocess.run([sys.executable, "-W", "error::SyntaxWarning", "-c", snippet.code], cwd=tmp_path,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{snippet.place}:\n{done.stdout}{done.stderr}"


def test_readme_is_among_the_checked_pages() -> None:
    assert any(snippet.place.startswith("README.md") for snippet in snippets())


@in_clone
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_page_names_and_links_exist(page: Path) -> None:
    assert (broken_links(page), missing_files(page)) == ([], [])


def steps_of_life() -> list[tuple[list[str], list[str]]]:
    """Return the functions and files of each step of the page; a file named without a folder is in acl/core."""
    rows = [line.strip("|").split("|") for line in LIFE.read_text(encoding="utf-8").splitlines()
            if re.match(r"\| \d+ \|", line)]
    return [(TICKED.findall(row[2]), [name if "/" in name else f"acl/core/{name}" for name in TICKED.findall(row[3])])
            for row in rows]


@in_clone
def test_functions_named_in_the_life_cycle_table_are_in_the_files_of_their_step() -> None:
    lost = []
    for names, files in steps_of_life():
        text = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
        lost += [name for name in names if not re.search(rf"\b{name.rpartition('.')[2]}\(", text)]
    assert len(steps_of_life()) > 30 and not lost


@in_clone
def test_page_of_top_explains_each_heading() -> None:
    explained = re.findall(r"`([A-Z/%]+)`", (ROOT / "docs/top.md").read_text(encoding="utf-8"))
    assert explained == heading().split()
