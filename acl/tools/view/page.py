"""Make the page: one HTML text of the files of `web/`, with the data inside.

The scripts are ES modules that import each other by file name, which is not possible in a page of one file.  So they
are concatenated in the order of their imports, into one function for the page and one for the worker.  For this, no two
scripts may define one name at their top level; that is checked.
"""

from __future__ import annotations

import html
import re
from importlib.resources import files

__all__ = ["bundle", "page"]

IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) )", re.MULTILINE)
NAMED = re.compile(r"^(?:export )?(?:async function|function|class)\*? (\w+)", re.MULTILINE)
VALUES = re.compile(r"^(?:export )?(?:const|let) (.*)$", re.MULTILINE)


def web_file(name: str) -> str:
    """Return the text of a file of `web/`."""
    return (files("acl.tools.view") / "web" / name).read_text(encoding="utf-8")


def in_order(name: str, done: dict[str, str], under: tuple[str, ...] = ()) -> None:
    """Add a script to `done`, after those that it imports.

    Raises
    ------
    ValueError
        Scripts import each other in a circle.
    """
    if name in under:
        raise ValueError(f"scripts in a circle: {' -> '.join([*under, name])}")
    if name in done:
        return
    text = web_file(name)
    for needed in IMPORT.findall(text):
        in_order(needed, done, (*under, name))
    done[name] = text


def bundle(entry: str) -> str:
    """Return a script and all scripts that it imports as one function, which is called at once.

    Raises
    ------
    ValueError
        Two scripts define one name at their top level.
    """
    scripts: dict[str, str] = {}
    in_order(entry, scripts)
    owner: dict[str, str] = {}
    for script, text in scripts.items():
        values = [name for line in VALUES.findall(text) for name in re.findall(r"(\w+) = ", line)]
        for name in [*NAMED.findall(text), *values]:
            if owner.setdefault(name, script) != script:
                raise ValueError(f"{name} is in both {owner[name]} and {script}")
    body = "\n".join(EXPORT.sub("", IMPORT.sub("", text)) for text in scripts.values())
    return f'(() => {{\n"use strict";\n{body}\n}})();'


def inside_script(text: str) -> str:
    """Return a script's text with escapes, so that it can be written between script tags."""
    return re.sub(r"</(script)|<!--", lambda found: "<\\/" + found[1] if found[1] else "<\\!--", text, flags=re.I)


def page(title: str, data: str) -> str:
    """Return the whole page.

    Parameters
    ----------
    title : str
        The title of the window.
    data : str
        The text of `pack.pack_history`.
    """
    parts = {
        "TITLE": html.escape(title), "STYLE": web_file("style.css"), "DATA": data,
        "WORKER": inside_script(bundle("worker.js")), "SCRIPT": inside_script(bundle("app.js")),
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda found: parts[found[1]], web_file("page.html"))
