"""Make the site's navigation from the list of pages in README.md.

An item of that list, `1. Start: [docs/pool.md](docs/pool.md), ...`, is a section, and the pages of docs/ that it
links are the section's pages.  So the line in README that leads readers to a new page also places it on the site.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["HEADING", "Section", "anchor", "outside", "sections", "title"]

HEADING = "## Pages, in the order of need"
#: The start page, which precedes all sections.
START = "index.md"
#: A section's title, and its pages.
Section = tuple[str, list[str]]


def anchor(heading: str, separator: str = "-") -> str:
    """Return the name by which GitHub links to a heading, so that links work there and on the site."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def title(text: str, name: str) -> str:
    """Return a page's first heading, without backquotes."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if not found:
        raise ValueError(f"{name}: no title, expected a line `# TITLE`")
    return found[1].replace("`", "")


def sections(readme: str) -> list[Section]:
    """Return the sections in README's order; a page that several items link belongs to the first."""
    _, found, rest = readme.partition(f"{HEADING}\n")
    if not found:
        raise ValueError(f"README.md has no heading `{HEADING}`: the site's sections stand below it")
    seen: set[str] = {START}
    made = []
    for item in re.split(r"^\d+\. ", rest.partition("\n## ")[0], flags=re.MULTILINE)[1:]:
        name = item.partition(":")[0].strip()
        pages = [page for page in dict.fromkeys(re.findall(r"\]\(docs/([\w.-]+\.md)[)#]", item)) if page not in seen]
        seen.update(pages)
        if pages:
            made.append((name, pages))
    return made


def outside(folder: Path, readme: str) -> list[str]:
    """Return a complaint for each page of the folder that is in no section."""
    placed = {START, *(page for _, pages in sections(readme) for page in pages)}
    return [f"docs/{path.name} is in no section of the site: link it in README.md under `{HEADING}`"
            for path in sorted(folder.glob("*.md")) if path.name not in placed]
