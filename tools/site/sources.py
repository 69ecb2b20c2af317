"""Make pages of the site for the files outside docs/ that pages link.

A Markdown file is shown as a page, another file as a listing, a folder as a list of its files.  So the
site needs no host with the sources.  Paths are relative to the repository's root; `repository/` is their folder
on the site.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

__all__ = ["Sources"]

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)\s#]*)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^ *(```|~~~)")
LANGUAGES = {".py": "python", ".c": "c", ".h": "c", ".json": "json", ".toml": "toml", ".lua": "lua", ".html": "html",
             ".pyx": "cython", ".pxd": "cython", ".pyi": "python", ".sh": "sh"}


def committed(root: Path) -> set[str]:
    """Return the files of the repository; in a copy without git, all files that exist."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
        return set(listed.stdout.splitlines())
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.suffix != ".pyc"}


class Sources:
    """Rewrites links of pages, and remembers the files to which they lead.

    Attributes
    ----------
    wanted : dict
        Page of the site (`repository/bench/README.md`) -> the path in the repository that it shows.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.files = committed(root)
        self.wanted: dict[str, str] = {}

    def page_of(self, path: str) -> str | None:
        """Return the page on the site of a path in the repository; None if there is no such path."""
        if path.startswith("docs/") and path in self.files:
            return path.removeprefix("docs/")
        if path in self.files:
            page = f"repository/{path}" if path.endswith(".md") else f"repository/{path}.md"
        elif any(name.startswith(f"{path}/") for name in self.files):
            page = f"repository/{path}/files.md"
        else:
            return None
        self.wanted[page] = path
        return page

    def rewritten(self, text: str, page: str, path: str) -> str:
        """Return a page's text with links for the site; `path` is the page's file in the repository."""

        def target(found: re.Match[str]) -> str:
            link, name = found[2], found[3] or ""
            if not link or "://" in link or link.startswith("mailto:"):
                return found[0]
            led = os.path.normpath(os.path.join(os.path.dirname(path), link))
            to = self.page_of(led)
            if to is None:
                return found[0]         # mkdocs reports that the link has no target
            return f"{found[1]}{os.path.relpath(to, os.path.dirname(page) or '.')}{name}{found[4]}"

        lines, fenced = [], False
        for line in text.splitlines(keepends=True):
            fenced ^= bool(FENCE.match(line))
            lines.append(line if fenced else LINK.sub(target, line))
        return "".join(lines)

    def shown(self, page: str) -> str:
        """Return the Markdown of one of the wanted pages."""
        path = self.wanted[page]
        if path.endswith(".md"):
            text = (self.root / path).read_text(encoding="utf-8")
        elif path in self.files:
            text = listing(path, (self.root / path).read_text(encoding="utf-8"))
        else:
            names = sorted(name for name in self.files if name.startswith(f"{path}/"))
            text = f"# {path}\n\n" + "".join(f"- [{name}]({os.path.relpath(name, os.path.dirname(path) or '.')})\n"
                                             for name in names)
        return self.rewritten(text, page, path)

    def pages(self) -> dict[str, str]:
        """Return all wanted pages with their text, including pages that these link."""
        made: dict[str, str] = {}
        while left := [page for page in self.wanted if page not in made]:
            for page in left:
                made[page] = self.shown(page)
        return made


def listing(path: str, text: str) -> str:
    """Return a file as a page of code; the fence is longer than any in the text."""
    fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall(r"`+", text) or [""]))
    return f"# {path}\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n{fence}\n"
