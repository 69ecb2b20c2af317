"""How the site places pages, rewrites links, and finds broken ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.documents import ROOT

from tools.site import check, reference, sections
from tools.site.sources import Sources, listing

README = """# x

## Pages, in the order of need

1. Start: [docs/a.md](docs/a.md), words; [docs/b.md](docs/b.md#part), more,
   and [docs/c.md](docs/c.md).
2. Later: [docs/a.md](docs/a.md), [docs/d.md](docs/d.md); [CHANGELOG.md](CHANGELOG.md).

## Next

[docs/e.md](docs/e.md)
"""


def test_sections_follow_the_items_of_the_readme() -> None:
    assert sections.sections(README) == [("Start", ["a.md", "b.md", "c.md"]), ("Later", ["d.md"])]


def test_sections_without_the_heading_are_refused() -> None:
    with pytest.raises(ValueError, match="no heading `## Pages, in the order of need`"):
        sections.sections("# x\n")


def test_page_in_no_section_is_named(tmp_path: Path) -> None:
    for name in ("a.md", "e.md", "index.md"):
        (tmp_path / name).write_text("# T\n")
    (complaint,) = sections.outside(tmp_path, README)
    assert complaint.startswith("docs/e.md is in no section of the site: link it in README.md")


def test_pages_of_docs_each_have_a_section() -> None:
    assert sections.outside(ROOT / "docs", (ROOT / "README.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("heading, name", [
    ("What it `promises`", "what-it-promises"), ("A -- b", "a----b"), ("Demo: `aclpool demo`", "demo-aclpool-demo")])
def test_anchor_is_that_of_a_code_host(heading: str, name: str) -> None:
    assert sections.anchor(heading) == name


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Return a repository with a page, a program and a folder."""
    for name, text in {"docs/page.md": "# P\n", "bench/README.md": "# B\n[p](../docs/page.md#p)\n",
                       "examples/run.py": "print('``` text')\n", "examples/c/a.c": "int a;\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Sources(tmp_path)


@pytest.mark.parametrize("link, rewritten", [
    ("../bench/README.md#b", "repository/bench/README.md#b"), ("../examples/run.py", "repository/examples/run.py.md"),
    ("../examples/c", "repository/examples/c/files.md"), ("page.md#p", "page.md#p"), ("#p", "#p"),
    ("https://host/x", "https://host/x"), ("../lost.md", "../lost.md")])
def test_link_to_the_repository_leads_to_a_page(sources: Sources, link: str, rewritten: str) -> None:
    assert sources.rewritten(f"a [b]({link}) c\n", "page.md", "docs/page.md") == f"a [b]({rewritten}) c\n"


def test_link_in_a_code_block_is_kept(sources: Sources) -> None:
    text = "```\n[b](../bench/README.md)\n```\n"
    assert sources.rewritten(text, "page.md", "docs/page.md") == text and sources.wanted == {}


def test_wanted_pages_include_those_that_they_link(sources: Sources) -> None:
    sources.rewritten("[a](../examples) [b](../bench/README.md)", "page.md", "docs/page.md")
    made = sources.pages()
    files = "repository/examples/files.md"
    assert set(made) == {files, "repository/examples/run.py.md", "repository/examples/c/a.c.md",
                         "repository/bench/README.md"}
    assert "](run.py.md)" in made[files] and "](c/a.c.md)" in made[files]
    assert "](../../page.md#p)" in made["repository/bench/README.md"]


def test_listing_fence_is_longer_than_those_inside() -> None:
    assert "\n````python\nx = '```'\n````\n" in listing("a.py", "x = '```'\n")


def test_reference_has_a_page_for_a_new_module(tmp_path: Path) -> None:
    for name, text in {"__init__.py": '"""Top."""\n__all__ = ["rt", "Pool"]\n',
                       "rt.pyi": '"""Calls."""\n__all__ = ["f"]\n',
                       "novel.py": '"""New things::"""\n__all__ = ["g"]\n', "_own.py": "", "room/__init__.py": "",
                       "sim/__init__.py": '"""Sim."""\n__all__ = ["h"]\n'}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    made = {file: text for file, _, text in reference.pages(tmp_path)}
    assert [file.removeprefix("api/") for file in made] == [
        "index.md", "acl.md", "pyacl.md", "acl.sim.md", "acl.rt.md", "acl.novel.md"]
    assert "::: acl.novel.g\n" in made["api/acl.novel.md"] and "| New things. |" in made["api/index.md"]
    assert "::: acl.Pool\n" in made["api/acl.md"] and "::: acl.rt\n" not in made["api/acl.md"]


def test_reference_of_a_module_without_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("__all__ = []\n")
    (tmp_path / "novel.py").write_text("")
    with pytest.raises(ValueError, match=r"acl\.novel has no __all__"):
        list(reference.pages(tmp_path))


@pytest.mark.parametrize("html, complaint", [
    ('<a href="lost.html">', "page.html: lost.html leads to no file"),
    ('<a href="other.html#lost">', "page.html: other.html#lost leads to no place of that page"),
    ('<a href="#lost">', "page.html: #lost leads to no place of that page"),
    ('<img src="lost.svg">', "page.html: lost.svg leads to no file"),
    ('<script src="https://host/x.js">', "page.html: <script src> loads https://host/x.js from another host"),
    ('<link href="//host/x.css">', "page.html: <link href> loads //host/x.css from another host"),
    ('<a href="other.html#there"><a href="#here"><a href="https://host/x"><p id="here">', None)])
def test_check_of_a_page_names_what_is_wrong(tmp_path: Path, html: str, complaint: str | None) -> None:
    (tmp_path / "page.html").write_text(html)
    (tmp_path / "other.html").write_text("<p id=there>")
    assert check.complaints(tmp_path) == ([complaint] if complaint else [])


def test_check_of_a_style_sheet_finds_a_foreign_font(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("@font-face { src: url(https://host/font.woff2) }")
    (tmp_path / "b.css").write_text("p { background: url(data:image/png;base64,AA) }")
    assert check.complaints(tmp_path) == ["a.css: loads from another host"]
