"""The order of the package's rooms (the folders of acl/) and of the modules of acl/core, by their import lines.

A module imports and cimports at its top only what stands below it, or in its own room.  An import inside a function may
go up: it runs when the function is called.  The public modules (acl/torch.py and their like) may use every room.

A struct that is part of an Arena or a Pool says in acl/core/types.pxd which modules write its fields ("Written by");
no other module does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["complaints"]

ROOT = Path(__file__).resolve().parent.parent
#: Bottom to top; rooms of one line do not use each other.
ROOMS = (
    ("bind",), ("core",), ("runtime",), ("pool",), ("inside", "pyacl"), ("execution",), ("adapters", "serving"),
    ("tools",))
#: Modules outside the rooms that belong to one: the callbacks of the core, and the runtime under one name.
MEMBERS = {"_core": "core", "_runtime": "runtime"}
#: Plain values, which import nothing of acl: every room may use them.
VALUES = "inside._snapshot"
#: The modules of acl/core, bottom to top, and the callbacks of the allocator (`acl/_core.pyx`).
CORE = ("_lock", "_ends", "_events", "policy", "types", "_bins", "_space", "_record", "_driver", "_frames", "_place",
        "_pages", "_order", "_asleep", "_tally", "_turns", "_climb", "_check", "_oom", "_arena", "_captures", "_trim",
        "_core", "_guard")
#: Drives the core in tests, and sets what it likes.
HARNESS = "tools._rig"
GROUP = re.compile(r"^# Written by (?P<writers>[^.]*)\.\ncdef struct (?P<struct>\w+):", re.M)
IMPORT = re.compile(
    r"^from acl(?P<package>[\w.]*) c?import (?:\((?P<many>[^)]*)\)|(?P<one>[^\n(]+))|^c?import acl\.(?P<plain>[\w.]+)",
    re.M)


def module_of(path: Path) -> str:
    """The dotted name below `acl`, such as `core._arena`."""
    return ".".join(path.relative_to(ROOT / "acl").with_suffix("").parts).removesuffix(".__init__")


def used(text: str) -> Iterator[str]:
    """The modules below `acl` that a source imports at its top; a name of a module counts as one too."""
    for match in IMPORT.finditer(text):
        if match["plain"]:
            yield match["plain"]
            continue
        package = match["package"].removeprefix(".")
        yield package
        for name in re.findall(r"(\w+)(?: as \w+)?(?:,|\s*$|\s*#)", match["many"] or match["one"]):
            yield f"{package}.{name}".removeprefix(".")


def room_of(module: str) -> str:
    """The room of a module; a public module is a room of its own."""
    return MEMBERS.get(module, module.partition(".")[0])


def rank(module: str) -> int | None:
    """The place of a module's room; None for the public modules."""
    return next((i for i, line in enumerate(ROOMS) if room_of(module) in line), None)


def room_complaint(module: str, other: str) -> str | None:
    """Why a module may not import another, as far as rooms go."""
    own, its = rank(module), rank(other)
    if own is None or its is None or other.startswith(VALUES):
        return None
    return None if its < own or room_of(module) == room_of(other) else f"imports {other}, which stands above it"


def core_complaint(module: str, other: str) -> str | None:
    """Why a module of acl/core may not import another one of it."""
    own, its = module.removeprefix("core."), other.removeprefix("core.")
    if own not in CORE or its not in CORE or CORE.index(its) < CORE.index(own):
        return None
    return None if own == its else f"cimports {its}, which stands above it in acl/core"


@cache
def groups() -> dict[str, set[str]]:
    """The writers of each struct that an Arena or a Pool has, by the name of the field that holds it."""
    text = (ROOT / "acl/core/types.pxd").read_text()
    found = {}
    for match in GROUP.finditer(text):
        field = re.search(rf"^    {match['struct']} (\w+)$", text, re.M)
        writers = re.findall(r"`([\w/]+)`", match["writers"])
        found[field[1]] = {"_core" if name == "_core" else name.replace("/", ".") if "/" in name else f"core.{name}"
                           for name in writers} if field else set()
    return found


def written(module: str, text: str) -> Iterator[str]:
    """Why a module may not assign to what it assigns to."""
    if module == HARNESS:
        return
    for match in re.finditer(rf"\.({'|'.join(groups())})\.(\w+)(?:\[[^\n=]*?\])? (?:[-+|&]|//)?= ", text):
        if module not in groups()[match[1]]:
            yield f"writes {match[1]}.{match[2]}, which acl/core/types.pxd says is written by others"


def complaints(path: Path) -> list[str]:
    """What is wrong with the imports of one file of the package."""
    if path.suffix not in {".py", ".pyx", ".pxd"} or not path.is_relative_to(ROOT / "acl"):
        return []
    module = module_of(path)
    if module.startswith("sim"):
        return []
    found = []
    if module.startswith("core.") and module.removeprefix("core.") not in ("", *CORE):
        found.append("is not in the order of acl/core")
    text = path.read_text()
    return found + wrong(module, text) + ([] if path.suffix == ".py" else list(written(module, text)))


def wrong(module: str, text: str) -> list[str]:
    """What is wrong with the imports of a module with this text."""
    pairs = [(room_complaint(module, other), core_complaint(module, other)) for other in sorted(set(used(text)))]
    return [complaint for pair in pairs for complaint in pair if complaint]
