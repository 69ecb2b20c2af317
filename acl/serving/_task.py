"""Task: how requests become the inputs of a batch, and how its outputs become results."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Task"]

Source = str | os.PathLike[str] | bytes


def arrays_of(item: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays of a request: of a mapping in its order, or the item itself."""
    return [np.asarray(value) for value in (item.values() if isinstance(item, Mapping) else (item,))]


class Task:
    """A model, and what its requests are.

    As it is, a request's item is an array without the batch's dimension, or a dict of such arrays by the model's
    input names.  Items of equal shapes and types share a batch, and a result is the tuple of the outputs' rows.
    Derive from it to change any of this: to pad texts of different lengths, say.

    The methods are called by the engine's threads, several at a time, and must not change the items.  An exception
    of theirs fails the request for which it is raised, after the batch has been split.

    Parameters
    ----------
    source : path or bytes, optional
        The model's file, or its content; not needed if `model` is overridden.
    """

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    def model(self) -> Source:
        """The model's file, or its content; asked once by each `Engine.load`."""
        if self.source is None:
            raise ValueError(f"{type(self).__name__} has no source, and does not override `model`")
        return self.source

    def goes_with(self, first: Any, other: Any) -> bool:
        """Whether two requests may share a batch."""
        shapes = ([(array.shape, array.dtype) for array in arrays_of(item)] for item in (first, other))
        return next(shapes) == next(shapes)

    def padded_bytes(self, items: Sequence[Any]) -> int:
        """Bytes of the inputs of a batch with these items."""
        return sum(array.nbytes for item in items for array in arrays_of(item))

    def collate(self, items: Sequence[Any]) -> Any:
        """The model's inputs for a batch: an array, a sequence in the model's order, or a dict by name."""
        first = items[0]
        if isinstance(first, Mapping):
            return {name: np.stack([np.asarray(item[name]) for item in items]) for name in first}
        return np.stack([np.asarray(item) for item in items])

    def split(self, outputs: Sequence[np.ndarray[Any, Any]], items: Sequence[Any]) -> Sequence[Any]:
        """A result for each item, in their order."""
        return [tuple(output[row] for output in outputs) for row in range(len(items))]
