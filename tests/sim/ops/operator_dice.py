"""The classes with which random models of one operator are made: a case, and the random choices of its recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["ALL", "Array", "Case", "Dice", "FLOATS", "INTEGERS", "NUMBERS", "Recipe", "axes_given"]

Array = np.ndarray[Any, Any]

FLOATS = ["float32", "float32", "float32", "float64", "float16"]
INTEGERS = ["int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64"]
NUMBERS = [*FLOATS, *INTEGERS]
ALL = [*NUMBERS, "bool"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 65504.0, 1e30, -1e30, 0.5, -0.5, 1.5]


@dataclass
class Case:
    """A node with its inputs; None is an input that is left out."""

    kind: str
    inputs: list[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 18
    domain: str = ""
    constants: frozenset[int] = frozenset()  # indices of inputs that are initializers
    tolerance: float = 1.0  # factor for the usual tolerance
    orders: bool = True  # False if rounding may select between results that are far apart
    wild: bool = False  # the model may be invalid, because a part of it was changed

    def __str__(self) -> str:
        shown = ", ".join("none" if x is None else f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        return f"{self.domain}{self.kind}-{self.opset}({shown}) {self.attributes} -> {self.outputs}"


class Dice:
    """The random choices of a recipe."""

    def __init__(self, seed: int, index: int) -> None:
        self.rng = np.random.default_rng([seed, index])
        self.strange = self.rng.random() < 0.2  # the values include special ones
        self.empty = self.rng.random() < 0.06  # the shapes include dimensions of zero

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def of(self, choices: list[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def whole(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def dim(self) -> int:
        if self.empty and self.chance(0.3):
            return 0
        return int(self.one(1, 1, 2, 3, 4, 5, 7, 8, 16, 17, 33) if self.chance(0.95) else self.whole(60, 700))

    def shape(self, low: int = 0, high: int = 5) -> tuple[int, ...]:
        dims = tuple(self.dim() for _ in range(self.whole(low, high)))
        while np.prod(dims, dtype=np.int64) > 60000:
            dims = tuple(max(1, d // 2) for d in dims)
        return dims

    def axis(self, rank: int) -> int:
        return self.whole(-rank, rank - 1) if rank else 0

    def values(self, dtype: str, shape: tuple[int, ...]) -> Array:
        rng = self.rng
        if dtype == "bool":
            return np.asarray(rng.random(shape) < 0.5)
        if dtype.startswith("float"):
            made = np.asarray(rng.standard_normal(shape) * self.one(1, 1, 1, 4, 30))
            if self.strange:
                made = np.where(rng.random(shape) < 0.15, rng.choice(SPECIAL, shape), made)
            with np.errstate(over="ignore"):
                return np.asarray(made).astype(dtype)
        info = np.iinfo(dtype)
        made = np.asarray(rng.integers(max(info.min, -9), 10, shape)).astype(dtype)
        if self.strange:
            edges = np.array([info.min, info.max, info.max // 2 + 1, info.max - 1, 0], dtype)
            made = np.where(rng.random(shape) < 0.2, rng.choice(edges, shape), made).astype(dtype)
        return np.asarray(made)

    def plain(self, dtype: str, shape: tuple[int, ...]) -> Array:
        """Return random values without special values such as NaN."""
        before, self.strange = self.strange, False
        made = self.values(dtype, shape)
        self.strange = before
        return made

    def partner(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a shape that broadcasts with `shape`."""
        dims = [1 if self.chance(0.3) else d for d in shape]
        return tuple(dims[self.whole(0, len(dims)) :]) if self.chance(0.4) else tuple(dims)

    def maybe(self, attributes: dict[str, Any], share: float = 0.6) -> dict[str, Any]:
        return {key: value for key, value in attributes.items() if self.chance(share)}


Recipe = Callable[[Dice, str], Case]


def axes_given(d: Dice, rank: int) -> list[int]:
    chosen = [int(a) for a in d.rng.permutation(rank)[: d.whole(1, max(rank, 1))]]
    return [a - rank if d.chance(0.3) else a for a in chosen]
