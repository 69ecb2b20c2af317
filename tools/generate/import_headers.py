"""Compare a folder of CANN's headers with the table: `python -m tools.generate.import_headers FOLDER [--write]`.

FOLDER is CANN's `include/acl`.  Prints a line for each function, enum, struct, type and constant that was added,
changed or removed against acl_api.json.  With --write it also puts them into the table; then run
`python -m tools.generate` and review the diff.  Exit status 0 if nothing differs, or the table was written; 1 if
something differs; 2 if the headers cannot be read.

Data that is not in headers stays as it is in the table.  New rows get a first guess, to be reviewed: `group` of the
row above, `dir` by the type, `since` "newer".
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import api
from .c_headers import HeaderError, plain, read

__all__ = ["differences", "main", "updated"]

Row = dict[str, Any]
#: The kinds of the table, each with the keys that are compared; `name` identifies a row.
COMPARED = {
    "functions": ("header", "returns", "params", "variadic"),
    "enums": ("header", "members"),
    "structs": ("header", "kind", "fields", "size"),
    "opaque": ("header", "alias"),
    "callbacks": ("header", "returns", "params", "variadic"),
    "typedefs": ("header", "alias"),
    "defines": ("header", "value"),
    "constants": ("header", "value"),
    "errors": ("header", "value"),
}
#: The lists in a row, and the word for one of their entries.
LISTS = {"params": "parameter", "fields": "field", "members": "member"}
SINGULAR = {"functions": "function", "enums": "enum", "structs": "struct", "opaque": "type", "callbacks": "callback",
            "typedefs": "type", "defines": "define", "constants": "constant", "errors": "error code"}


def comparable(key: str, value: Any) -> Any:
    """Return a value in the form in which it is compared: types spelled alike, without data that headers lack."""
    if key in ("returns", "alias", "type"):
        return plain(value)
    if key in LISTS:
        parts = ("name", "type", "array", "fields", "nested_tag", "value")
        return [{part: comparable(part, one[part]) for part in parts if part in one} for one in value]
    return value


def sorted_rows(found: dict[str, list[Row]], table: Row) -> dict[str, list[Row]]:
    """Divide the headers' constants into defines, constants and errors, as the table does."""
    errors = {row["name"] for row in table["errors"]}
    others = {row["name"] for kind in ("defines", "constants") for row in table[kind]}
    rows: dict[str, list[Row]] = {**found, "errors": []}
    for kind in ("defines", "constants"):
        rows[kind] = []
        for row in found[kind]:
            new_error = row["name"] not in others and row["name"].startswith("ACL_ERROR_")
            if row["name"] in errors or new_error:
                rows["errors"].append({"form": "define", **row})
            elif not row["name"].endswith("_H"):        # not a constant: an include guard that has a value
                rows[kind].append(row)
    return rows


def show(value: Any) -> str:
    """Return a value, or an entry of a list, as text for a line about a difference."""
    if isinstance(value, dict):
        sizes = "".join(f"[{size}]" for size in value.get("array", []))
        told = value.get("value", value.get("type"))
        inner = f" {{{', '.join(show(one) for one in value['fields'])}}}" if "fields" in value else ""
        return f"{told}{sizes}{inner}"
    return value if isinstance(value, str) else json.dumps(value)


def entries_changed(word: str, was: list[Row], now: list[Row]) -> Iterator[str]:
    """Describe what differs between two lists of parameters, fields or members."""
    before, after = {one["name"]: one for one in was}, {one["name"]: one for one in now}
    yield from (f"{word} {name} = {show(after[name])} added" for name in after if name not in before)
    for name, one in before.items():
        if name not in after:
            yield f"{word} {name} = {show(one)} removed"
        elif one != after[name]:
            yield f"{word} {name}: {show(one)} -> {show(after[name])}"
    common = [name for name in before if name in after]
    if common != [name for name in after if name in before]:
        yield f"{word}s: another order"


def changed(kind: str, old: Row, new: Row) -> Iterator[str]:
    """Describe what differs between a row of the table and the same row in the headers."""
    for key in COMPARED[kind]:
        was = comparable(key, old[key]) if key in old else None
        now = comparable(key, new[key]) if key in new else None
        if was == now:
            continue
        if key in LISTS:
            yield from entries_changed(LISTS[key], was, now)
        else:
            yield f"{key} {show(was)} -> {show(now)}"


def differences(table: Row, rows: dict[str, list[Row]]) -> list[str]:
    """Return a line for each row that was added, changed or removed."""
    lines = []
    for kind, word in SINGULAR.items():
        old = {row["name"]: row for row in table[kind]}
        new = {row["name"]: row for row in rows[kind]}
        lines += [f"added {word} {name} ({new[name]['header']})" for name in new if name not in old]
        lines += [f"changed {word} {name}: {what}" for name in old if name in new
                  for what in changed(kind, old[name], new[name])]
        lines += [f"removed {word} {name} ({old[name]['header']})" for name in old if name not in new]
    return lines


def direction(parameter: Row) -> Row:
    """Add a guess of the direction to a new parameter: a pointer to what is not const is an output."""
    spelled = plain(parameter["type"])
    out = spelled.endswith("*") and not spelled.startswith("const ") and spelled != "void *"
    return {**parameter, "dir": "out" if out else "in", "dir_source": "inferred"}


def new_entry(key: str, one: Row) -> Row:
    """Return a new parameter, field or member of a row."""
    if key == "params":
        return direction(one)
    return {**one, "since": "newer"} if key == "members" else one


def merged(kind: str, old: Row, new: Row) -> Row:
    """Return the table's row with the changes of the headers; other data of the row is kept."""
    row = dict(old)
    for key in COMPARED[kind]:
        was = comparable(key, old[key]) if key in old else None
        if key not in new or comparable(key, new[key]) == was:
            continue
        row[key] = new[key]
        if key in LISTS:
            before = {one["name"]: one for one in old[key]}
            row[key] = [{**before[one["name"]], **one} if one["name"] in before else new_entry(key, one)
                        for one in new[key]]
    if kind == "structs":
        row["align"] = new["align"]
    return row


def fresh(kind: str, new: Row, above: Row | None) -> Row:
    """Return a new row of the table."""
    row = {**new, "since": "newer"}
    if kind == "functions":
        group = above["group"] if above else "unsorted"
        row["params"] = [direction(one) for one in new["params"]]
        row = {"name": row.pop("name"), "header": row.pop("header"), "group": group, **row}
    return row


def updated(table: Row, rows: dict[str, list[Row]]) -> Row:
    """Return the table with the changes of the headers; a new row follows the one above it in its header."""
    made = dict(table)
    for kind in COMPARED:
        new = {row["name"]: row for row in rows[kind]}
        kept = [merged(kind, row, new[row["name"]]) for row in table[kind] if row["name"] in new]
        names = [row["name"] for row in kept]
        above = None
        for row in rows[kind]:
            if row["name"] not in names:
                at = names.index(above["name"]) + 1 if above and above["header"] == row["header"] else len(kept)
                kept.insert(at, fresh(kind, row, kept[at - 1] if at else None))
                names.insert(at, row["name"])
            above = row
        made[kind] = kept
    folder_headers = {row["header"] for kind in COMPARED for row in made[kind]}
    known = [*table["meta"]["headers"], *(row["header"] for row in table["errors"])]
    made["meta"] = {**table["meta"], "headers": table["meta"]["headers"] + sorted(folder_headers - set(known))}
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate.import_headers",
                                     description="Compare a folder of CANN's headers with acl_api.json.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="CANN's include/acl")
    parser.add_argument("--write", action="store_true", help="put the differences into the table")
    parser.add_argument("--table", type=Path, default=api.HERE / "acl_api.json", help="another table")
    chosen = parser.parse_args(arguments)
    try:
        table = json.loads(chosen.table.read_text())
        rows = sorted_rows(read(chosen.folder), table)
    except (HeaderError, OSError, json.JSONDecodeError) as error:
        print(f"import_headers: {error}", file=sys.stderr)
        return 2
    lines = differences(table, rows)
    print("\n".join(lines) or "no difference")
    if chosen.write and lines:
        chosen.table.write_text(json.dumps(updated(table, rows), indent=1, ensure_ascii=False))
        print(f"{len(lines)} differences written to {chosen.table}; now run: python -m tools.generate")
        return 0
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
