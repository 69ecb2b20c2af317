"""Write the table of options in docs/pool.md, from `OPTIONS` of acl/pool/_options.pyx."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from . import api

SOURCE = "acl/pool/_options.pyx"
PAGE = "docs/pool.md"
HEAD = "| option | type | default | what it sets | change it if |\n|---|---|---|---|---|\n"
#: A kind of option as the page names it.
TYPES = {"SIZE": "size", "SHARE": "size", "BOOL": "bool", "MS": "int", "TEXT": "str"}


def shown(default: object) -> str:
    """Return a default as the page shows it."""
    if default is None:
        return "none"
    return f'`"{default}"`' if isinstance(default, str) else str(default)


def options(source: str) -> Iterator[tuple[str, list[Any], dict[str, str]]]:
    """Yield each option's name, its kind and three literals, and its optional fields."""
    text = source.partition("\nOPTIONS = ")[2]
    table = ast.parse(text[:text.index("\n}\n") + 2], mode="eval").body
    assert isinstance(table, ast.Dict)
    for key, call in zip(table.keys, table.values, strict=True):
        assert isinstance(call, ast.Call), ast.unparse(call)
        kind, *rest = call.args
        yield (ast.literal_eval(key), [ast.unparse(kind), *map(ast.literal_eval, rest)],
               {str(word.arg): ast.literal_eval(word.value) for word in call.keywords})


def row(name: str, given: list[Any], words: dict[str, str]) -> str:
    """Return one line of the table."""
    kind, default, sets, change = given
    cells = [f"`{name}`", words.get("type") or TYPES[kind], words.get("shown") or shown(default), sets, change]
    return f"| {' | '.join(cells)} |\n"


def outputs(_table: dict[str, Any]) -> dict[str, str]:
    """Return the page with its table written again."""
    rows = "".join(row(*option) for option in options((api.ROOT / SOURCE).read_text(encoding="utf-8")))
    before, head, after = (api.ROOT / PAGE).read_text(encoding="utf-8").partition(HEAD)
    if not head:
        raise SystemExit(f"{PAGE} lacks the head of the table of options: {HEAD.splitlines()[0]}")
    return {PAGE: before + head + rows + after[after.index("\n\n") + 1:]}
