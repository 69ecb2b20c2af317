"""Check what mkdocs does not: every link in the HTML of a built site, and what a page would load from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["complaints"]

#: Attributes whose target a page loads at once; the target of a link is loaded only when the reader follows it.
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}
FAR = re.compile(r"url\(\s*['\"]?(?:https?:)?//")


class Seen(HTMLParser):
    """The targets and the anchors of one page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[tuple[str, str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the element's ids, and what it refers to."""
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src", "data") and value and not (tag == "link" and ("rel", "canonical") in attrs):
                self.targets.append((tag, name, value))


def read(path: Path) -> Seen:
    """Return a page's targets and anchors."""
    seen = Seen()
    seen.feed(path.read_text(encoding="utf-8"))
    return seen


def complaints(site: Path) -> list[str]:
    """Return a line for each thing that is wrong with a built site."""
    pages = {path.resolve(): read(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, seen in pages.items():
        name = path.relative_to(site.resolve())
        for tag, attribute, value in seen.targets:
            parts = urlsplit(value)
            if parts.scheme or parts.netloc:
                if (tag, attribute) in LOADS and parts.scheme != "data":
                    found.append(f"{name}: <{tag} {attribute}> loads {value} from another host")
                continue
            if name.name == "404.html":
                continue                # the links of this page begin at the root of the host, not at the page
            led = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            led = led / "index.html" if led.is_dir() else led
            if not led.is_file():
                found.append(f"{name}: {value} leads to no file")
            elif parts.fragment and led in pages and unquote(parts.fragment) not in pages[led].anchors | {"__top", ""}:
                found.append(f"{name}: {value} leads to no place of that page")
    for path in sorted(site.rglob("*.css")):
        if FAR.search(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(site)}: loads from another host")
    return found
