"""Slow, simple models of two allocation policies; tests compare the fast models of `bench/policies` with them.

They are written from the descriptions of the policies, with lists and loops over all pieces.  They share no code and no
data structure with the fast models.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["SlowExact", "SlowTorch"]

MIB = 1 << 20


@dataclass
class SlowExact:
    """A policy that keeps free blocks by rounded size, and never returns memory to the device."""

    free: dict[int, int] = field(default_factory=dict)
    reserved: int = 0
    growths: int = 0

    def alloc(self, size: int) -> int:
        rounded = -(-size // 512) * 512
        if self.free.get(rounded, 0):
            self.free[rounded] -= 1
        else:
            self.reserved += rounded
            self.growths += 1
        return rounded

    def release(self, block: int) -> None:
        self.free[block] = self.free.get(block, 0) + 1


@dataclass
class Piece:
    segment: int
    start: int
    size: int
    small: bool
    live: bool = False


@dataclass
class SlowTorch:
    """A policy with segments of 2 MiB, 20 MiB or a multiple of 2 MiB.

    Requests of up to 1 MiB and larger ones have segments of their own.  An allocation takes the smallest free piece
    that fits; of several pieces of that size, the first.
    """

    pieces: list[Piece] = field(default_factory=list)
    reserved: int = 0
    growths: int = 0

    def alloc(self, size: int) -> Piece:
        rounded = max(512, -(-size // 512) * 512)
        small = rounded <= MIB
        fitting = [p for p in self.pieces if not p.live and p.small == small and p.size >= rounded]
        if fitting:
            piece = min(fitting, key=lambda p: (p.size, p.segment, p.start))
        else:
            room = 2 * MIB if small else 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
            piece = Piece(self.growths, 0, room, small)
            self.pieces.append(piece)
            self.reserved += room
            self.growths += 1
        rest = piece.size - rounded
        if rest >= 512 if small else rest > MIB:
            self.pieces.append(Piece(piece.segment, piece.start + rounded, rest, small))
            piece.size = rounded
        piece.live = True
        return piece

    def release(self, piece: Piece) -> None:
        piece.live = False
        for other in [p for p in self.pieces if p.segment == piece.segment and not p.live and p is not piece]:
            if other.start + other.size == piece.start or piece.start + piece.size == other.start:
                piece.start = min(piece.start, other.start)
                piece.size += other.size
                self.pieces.remove(other)
