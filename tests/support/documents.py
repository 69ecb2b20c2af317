"""Code in README and docs that is run as it stands.

A Python block is run if the line above it is `<!-- run -->`. `<!-- run needs torch_npu -->` names packages
without which it is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^<!-- run(?P<wants>[^>]*) -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A block of a document: where it is, what it wants, and its code."""

    place: str
    needs: tuple[str, ...]
    code: str


def snippets() -> list[Snippet]:
    """All blocks that are marked to be run."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start("code")) + 1
            needs = re.findall(r"\w+", match["wants"].removeprefix(" needs"))
            found.append(Snippet(f"{path.name}:{line}", tuple(needs), match["code"]))
    return found
