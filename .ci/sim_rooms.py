"""The order of the simulator's rooms (the folders of acl/sim that hold C): what stands below uses nothing above.

`includes()` reads the sources, `symbols(OBJECTS)` what `nm` says of a build's objects.  What a room below needs of one
above is lent to it: the room below declares a table of functions, the room above fills it in as the library is loaded.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["ROOMS", "includes", "sources", "symbols"]

SIM = Path(__file__).resolve().parent.parent / "acl/sim"
#: Bottom to top.
ROOMS = ("base", "numbers", "ops", "layers", "races", "streams", "chip", "memory", "check", "copies", "graphs",
         "kernels", "queues", "profiling", "tensors", "onnx", "models", "single_ops", "control")
#: Its headers and the functions' names are at the bottom, the exported functions at the top.
GENERATED = "generated"
EXPORTED = ("exports", "exports_op_compiler")
#: What still points up.  This list may only get shorter.
#: race.c reads a stream's number and counters, and calls nothing of the room.
KNOWN = {("races/race.c", "streams/stream.h")}
MOST_FILES = 32
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def rank(name: str) -> int:
    """The place of a file `room/name` in the order."""
    room, _, file = name.partition("/")
    if room == GENERATED:
        return len(ROOMS) if file.partition(".")[0] in EXPORTED and not file.endswith(".h") else 0
    return ROOMS.index(room)


def sources() -> list[str]:
    """Every C file and header, as `room/name`."""
    return sorted(path.relative_to(SIM).as_posix() for path in SIM.rglob("*.[ch]"))


def misplaced(name: str) -> str:
    """Why a file is not where it belongs, or nothing."""
    if name.count("/") != 1:
        return "lies in no room"
    if name.split("/")[0] not in (*ROOMS, GENERATED):
        return f"the room is not in the order: {', '.join(ROOMS)} (.ci/sim_rooms.py)"
    return ""


def rooms_wrong() -> Iterator[str]:
    """Rooms that are too large, or do not say what they are."""
    for room in ROOMS:
        files = [name for name in sources() if name.startswith(f"{room}/")]
        readme = SIM / room / "README.md"
        if len(files) > MOST_FILES:
            yield f"acl/sim/{room}: {len(files)} C files; divide it by subject (at most {MOST_FILES})"
        if not readme.exists() or readme.read_text().count("\n") > 15:
            yield f"acl/sim/{room}: wants a README.md of at most 15 lines"


def includes() -> list[str]:
    """Complaints about files and their includes."""
    found = list(rooms_wrong())
    for name in sources():
        if wrong := misplaced(name):
            found.append(f"acl/sim/{name}: {wrong}")
            continue
        for header in INCLUDE.findall((SIM / name).read_text()):
            if "/" not in header and (SIM / name).with_name(header).exists():
                found.append(f"acl/sim/{name}: includes {header} without its room")
            room = header.split("/")[0]
            if room in ROOMS and rank(header) > rank(name) and (name, header) not in KNOWN:
                found.append(f"acl/sim/{name}: includes {header} of a room above ({' < '.join(ROOMS)})")
    return found


def symbols(objects: Path) -> list[str]:
    """Complaints about what the objects of a build use of rooms above."""
    defined: dict[str, str] = {}
    used: list[tuple[str, str]] = []
    for name in sources():
        if not name.endswith(".c"):
            continue
        made = objects / Path(name).with_suffix(".o")
        listed = subprocess.run(["nm", made], check=True, text=True, capture_output=True)
        for line in listed.stdout.splitlines():
            *_, kind, symbol = line.split()
            if kind == "U":
                used.append((name, symbol))
            elif kind in "TDBRVWC":
                defined.setdefault(symbol, name)
    return [f"acl/sim/{name}: uses {symbol} of {defined[symbol]}, a room above" for name, symbol in used
            if symbol in defined and rank(defined[symbol]) > rank(name)]
