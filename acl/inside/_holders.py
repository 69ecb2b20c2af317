"""The objects that keep a buffer alive: the path to it from a module, a frame or a thread, as a Python expression.

The paths are found in the garbage collector's lists; each step visits all objects.  So use this for leak reports, not
in a busy service.  References from C are not seen.  After `gc.freeze`, which services call before they fork, the
collector does not list older objects: of these, only objects near a module's names are seen.  Thread rule: with the
GIL.  Other threads may change references during the search, so the answer may mix several moments.
"""

from __future__ import annotations

import gc
import sys
import time
import types
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from acl.inside._snapshot import readable
from acl.runtime._buffer import Buffer

if TYPE_CHECKING:
    from acl.inside._leaks import LiveBlock

__all__ = ["holders_of"]

STEPS = 8               # most steps of a path
SECONDS = 0.5           # longest time of the search for one path
KEY_LENGTH = 40                 # most characters of a dict's key in a path
PADDING = 64            # most bytes by which a block is larger than its buffer, for the pool and the chip
BATCH = 4096            # objects whose references are read at a time
NEAR = 2                # most steps from a module's names to a frozen object that is seen
# Objects that an exception refers to for each call.  They do not count as steps.
ERRORS: tuple[type[Any], ...] = (types.FrameType, types.TracebackType)
CODE: tuple[type[Any], ...] = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)


def holders_of(blocks: list[LiveBlock]) -> dict[int, str]:
    """Return paths to the open buffers in these blocks, such as ``service.KEPT[0].recent[7]``, by block address.

    Each path is the shortest one.  If none leads to a module, a class or a frame, it is only a part of a path.  A block
    is left out if it has no buffer, or if the collector sees no reference to its buffer.
    """
    asked = {block.address: block.size for block in blocks}
    frozen = frozen_objects()
    found = buffers_in(sorted((block.address, block.bytes) for block in blocks), frozen)
    holders = holders_among(frozen)
    told: dict[int, str] = {}
    while found:
        address, nodes = found.popitem()
        size = nodes[0].size
        view = address != nodes[0].address or size + PADDING < asked[address]
        way = way_to(nodes, holders)
        if way:
            told[address] = way + (f": a view, {readable(size)} of {readable(asked[address])}" if view else "")
    return told


def frozen_objects() -> list[Any]:
    """Return the objects near a module's names, if the garbage collector's objects are frozen; else none.

    The collector does not list frozen objects.
    """
    if not gc.get_freeze_count():
        return []
    level: list[Any] = [vars(each) for each in list(sys.modules.values()) if isinstance(each, types.ModuleType)]
    found = {id(each): each for each in level}
    for _ in range(NEAR):
        level = [each for each in gc.get_referents(*level) if gc.is_tracked(each) and id(each) not in found]
        found.update((id(each), each) for each in level)
    return list(found.values())


def holders_among(objects: list[Any]) -> dict[int, list[Any]]:
    """Return a dict: from the id of each object that is referred to, to the objects that refer to it."""
    found: dict[int, list[Any]] = {}
    for each in objects:
        for held in gc.get_referents(each):
            found.setdefault(id(held), []).append(each)
    return found


def buffers_in(spans: list[tuple[int, int]], frozen: list[Any]) -> dict[int, list[Any]]:
    """Return the largest buffer of each block that has one, with the untracked dicts and tuples that contain it."""
    starts = [address for address, _ in spans]
    found: dict[int, list[Any]] = {}
    locals_now = ((value, ()) for frame in frames() for value in locals_of(frame).values())
    for each, around in chain(held_by(gc.get_objects()), held_by(frozen), locals_now):
        if type(each) is not Buffer or each.closed:
            continue
        i = bisect_right(starts, each.address) - 1
        if i >= 0 and each.address < starts[i] + spans[i][1]:
            if starts[i] not in found or each.size > found[starts[i]][0].size:
                found[starts[i]] = [each, *around]
    return found


def held_by(objects: list[Any]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Return each object that the collector's objects refer to, with the containers between them.

    The collector does not track buffers, nor dicts and tuples that contain only untracked objects.
    """
    for i in range(0, len(objects), BATCH):
        for each in gc.get_referents(*objects[i : i + BATCH]):
            yield each, ()
            if type(each) in (dict, tuple) and not gc.is_tracked(each):
                yield from untracked(each, (each,))


def untracked(holder: Any, around: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Return the contents of a dict or tuple, and those of untracked dicts and tuples in it."""
    for each in list(holder.values()) if type(holder) is dict else holder:
        yield each, around
        if type(each) in (dict, tuple) and len(around) < STEPS:
            yield from untracked(each, (each, *around))


def frames() -> Iterator[types.FrameType]:
    """Return the frames of all threads, without those of this package."""
    for top in sys._current_frames().values():
        frame: types.FrameType | None = top
        while frame is not None:
            if not is_ours(frame):
                yield frame
            frame = frame.f_back


def locals_of(frame: types.FrameType) -> dict[str, Any]:
    """Return a frame's present locals.

    Up to Python 3.12 a function's frame keeps the returned dict, which would keep values alive whose names are deleted
    later.  Therefore the dict is cleared, unless other code has it too, for example by `locals()`.
    """
    names = frame.f_locals
    found = dict(names)
    if type(names) is dict and frame.f_code.co_flags & CO_OPTIMIZED and sys.getrefcount(names) <= 3:
        names.clear()
    return found


def way_to(nodes: list[Any], holders: dict[int, list[Any]]) -> str:
    """Return the path to a buffer, found by a breadth-first search of the objects that refer to it.

    If no path is found within SECONDS, return the last part of one; "" if no object was found.
    """
    ways = [""]
    for held, holder in pairwise(nodes):
        ways.append(step_of(holder, held)[1] + ways[-1])
    depths = list(range(len(nodes)))
    seen = {id(nodes), *map(id, nodes)}
    ends = time.monotonic() + SECONDS
    at = 0
    while at < len(nodes) and time.monotonic() < ends:
        way = step_back(nodes, holders, ways, depths, seen, at)
        if way:
            return way
        at += 1
    partly = [i for i, each in enumerate(ways) if each]
    return f"{type(nodes[partly[-1]]).__name__}{ways[partly[-1]]}" if partly else ""


def step_back(
    nodes: list[Any], holders: dict[int, list[Any]], ways: list[str], depths: list[int], seen: set[int], at: int,
) -> str:
    """Add the objects that refer to a node.  Return the whole path if it begins at one of them, else ""."""
    held = nodes[at]
    for holder in chain(gc.get_referrers(held), holders.get(id(held), ())):
        if id(holder) in seen or is_ours(holder):
            continue
        seen.add(id(holder))
        root, step = step_of(holder, held)
        if root:
            return step + ways[at]
        depth = depths[at] + (not isinstance(holder, ERRORS))
        if depth < STEPS:
            nodes.append(holder)
            ways.append(step + ways[at])
            depths.append(depth)
    for frame in frames():
        for name, value in locals_of(frame).items():
            if value is held:
                return f"{name}{ways[at]}, a local of {frame.f_code.co_name} at {place(frame)}"
    return ""


def is_ours(holder: Any) -> bool:
    """Return True for objects that are not part of paths: frames of this package, and modules."""
    if isinstance(holder, types.FrameType):
        return str(holder.f_globals.get("__name__")).startswith("acl.")
    return isinstance(holder, types.ModuleType)


def step_of(holder: Any, held: Any) -> tuple[bool, str]:
    """Return a pair: True if a path may begin at the holder, and the expression for its reference to the object."""
    if isinstance(holder, types.FrameType):
        return False, local_in(holder, held)    # a frame of a stored exception; `step_back` handles running frames
    if isinstance(holder, types.TracebackType):
        return False, ""
    if isinstance(holder, CODE):
        return True, f"a local of {holder.__qualname__}, which has not ended: it"
    if isinstance(holder, dict):
        return step_of_dict(holder, held)
    if isinstance(holder, (list, tuple, deque)):
        where = [i for i, each in enumerate(holder) if each is held]
        return False, f"[{where[0]}]" if where else ""
    if isinstance(holder, (set, frozenset)):
        return False, "{...}"
    if isinstance(holder, types.CellType):
        return False, ""
    if isinstance(holder, types.FunctionType):
        return True, f"{holder.__module__}.{holder.__qualname__}'s "
    if isinstance(holder, type):
        return True, f"{holder.__module__}.{holder.__qualname__}."
    return False, attribute(holder, held)


def step_of_dict(holder: dict[Any, Any], held: Any) -> tuple[bool, str]:
    """Return, for a holder that is a dict, True if a path may begin at it, and the expression for its reference.

    The dict has the names of a module, the attributes of an object, or any other items.
    """
    name = holder.get("__name__")
    keys = [key for key, value in list(holder.items()) if value is held]
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is not None and vars(module) is holder and keys:
        return True, f"{name}.{keys[0]}"
    if not keys:
        return False, ""
    owner = owner_of(holder)
    text = repr(keys[0])
    if owner is not None and isinstance(keys[0], str):
        return False, f".{keys[0]}"
    return False, f"[{text if len(text) <= KEY_LENGTH else text[:KEY_LENGTH] + '...'}]"


def owner_of(names: dict[Any, Any]) -> Any:
    """Return the object whose attributes are in a dict, or None."""
    for each in gc.get_referrers(names):
        if not isinstance(each, (dict, list, tuple, types.FrameType, deque)):
            if getattr(each, "__dict__", None) is names:
                return each
    return None


def local_in(frame: types.FrameType, held: Any) -> str:
    """Return the expression for a local of a frame that has ended."""
    names = [name for name, value in locals_of(frame).items() if value is held]
    return f" -> {names[0]}, a local of {frame.f_code.co_name} at {place(frame)}" if names else ""


def attribute(holder: Any, held: Any) -> str:
    """Return the expression for an object's attribute."""
    if isinstance(holder, BaseException):
        for name in ("__traceback__", "__cause__", "__context__"):
            if getattr(holder, name) is held:
                return f".{name}"
    values = getattr(holder, "__dict__", {})
    names = [name for name, value in list(values.items()) if value is held]
    for slot in [] if names else slots_of(type(holder)):
        if getattr(holder, slot, None) is held:
            return f".{slot}"
    return f".{names[0]}" if names else ""


def slots_of(kind: type) -> list[str]:
    """Return the names in `__slots__` of a class and its bases."""
    found = [base.__dict__.get("__slots__", ()) for base in kind.__mro__]
    return [name for names in found for name in ((names,) if isinstance(names, str) else names)]


def place(frame: types.FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
