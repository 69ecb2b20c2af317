"""The pages of the documentation: their Python blocks, links, and names of files.

A Python block is run if the line above it is `<!-- run -->`.  With `<!-- run needs torch_npu -->` it is skipped if one
of the named packages is not installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^<!-- run(?P<wants>[^>]*) -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A Python block of a page: file and line, the packages that it needs, and its code."""

    place: str
    needs: tuple[str, ...]
    code: str


LINK = re.compile(r"\]\(([^)\s]+)\)")
TICKED = re.compile(r"`([^`\n]+)`")


def pages() -> list[Path]:
    """Return README, CONTRIBUTING, and the pages of docs and bench."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
            *sorted((ROOT / "bench").glob("*.md"))]


def anchor(heading: str) -> str:
    """Return the name by which GitHub links to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page to files or headings that do not exist."""
    broken = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        file, _, name = target.partition("#")
        path = page.parent / file if file else page
        if "://" in target:
            continue
        if not path.exists():
            broken.append(target)
        elif name and name not in map(anchor, re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)):
            broken.append(target)
    return broken


def missing_files(page: Path) -> list[str]:
    """Return the paths of this repository that a page names and that do not exist."""
    named = [text for text in TICKED.findall(page.read_text(encoding="utf-8"))
             if re.fullmatch(r"(acl|bench|docs|examples|tests|tools)/[\w./-]*", text)]
    return [text for text in named if not (ROOT / text).exists()]


def snippets() -> list[Snippet]:
    """Return all blocks of README and docs that are marked to be run."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start("code")) + 1
            needs = re.findall(r"\w+", match["wants"].removeprefix(" needs"))
            found.append(Snippet(f"{path.name}:{line}", tuple(needs), match["code"]))
    return found
