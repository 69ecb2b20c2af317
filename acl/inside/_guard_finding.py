"""A finding of a guarded pool, a plain value. Imported only when there is one, because dataclasses load slowly."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GuardFinding"]

KINDS = ("overflow", "use after free", "double free", "foreign pointer")
WORDS = ("bytes past the end of a block were written", "a freed block was written to",
         "a block was freed twice", "a pointer that is no live block was freed")


@dataclass(frozen=True)
class GuardFinding:
    """A memory error in code that uses the pool.

    Attributes
    ----------
    kind : str
        ``"overflow"``, ``"use after free"``, ``"double free"`` or ``"foreign pointer"``.
    device, stream : int
        Ordinal of the block's device, and handle of its stream.
    block, address, size : int
        Pointer that ACL has for the block, its address, and its requested bytes; 0 if not known.
    allocated, freed, found : tuple of str
        The stacks of the block's allocation, of its free, and of the call in which the error was
        found, innermost frame first; empty if there is none.
    """

    kind: str
    device: int
    stream: int
    block: int
    address: int
    size: int
    allocated: tuple[str, ...]
    freed: tuple[str, ...]
    found: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{WORDS[KINDS.index(self.kind)]}: block {self.block:#x} "
                 f"of stream {self.stream:#x} on device {self.device}"]
        if self.size:
            lines.append(f"  {self.size} bytes at {self.address:#x}")
        for what, stack in (("allocated", self.allocated), ("freed", self.freed),
                            ("noticed", self.found)):
            if stack:
                lines += [f"  {what} by", *(f"    {frame}" for frame in stack)]
        return "\n".join(lines)
