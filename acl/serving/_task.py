"""The class `Task`, which makes a batch's inputs from requests, and the requests' results from the batch's outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Task"]

Source = str | os.PathLike[str] | bytes


def arrays_of(item: Any) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of a request: the values of a mapping in its order, or the item itself."""
    return [np.asarray(value) for value in (item.values() if isinstance(item, Mapping) else (item,))]


class Task:
    """A model, and the methods that make batches of its requests.

    By default, a request's item is an array without the batch dimension, or a dict of such arrays by the names of the
    model's inputs.  Items of equal shapes and types share a batch.  The result of an item is a tuple: its row of each
    output.  Override methods in a subclass to change this, for example to pad texts of different lengths.

    Several threads of the engine call the methods at the same time; the methods must not change the items.  If
    `collate` or `split` raises an exception, the batch is halved until the request that causes it is alone and fails.

    Parameters
    ----------
    source : path or bytes, optional
        Path of the model's file, or the file's content; not needed if `model` is overridden.
    """

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    def model(self) -> Source:
        """Return the path of the model's file, or the file's content; each `Engine.load` calls it once."""
        if self.source is None:
            raise ValueError(f"{type(self).__name__} has no source, and does not override `model`")
        return self.source

    def goes_with(self, first: Any, other: Any) -> bool:
        """Return True if two requests may share a batch; by default, if their shapes and types are equal."""
        shapes = ([(array.shape, array.dtype) for array in arrays_of(item)] for item in (first, other))
        return next(shapes) == next(shapes)

    def padded_bytes(self, items: Sequence[Any]) -> int:
        """Return the bytes of a batch's inputs; from them the engine estimates the memory that the batch needs."""
        return sum(array.nbytes for item in items for array in arrays_of(item))

    def collate(self, items: Sequence[Any]) -> Any:
        """Return the model's inputs for a batch: an array, a sequence in the model's order, or a dict by name."""
        first = items[0]
        if isinstance(first, Mapping):
            return {name: np.stack([np.asarray(item[name]) for item in items]) for name in first}
        return np.stack([np.asarray(item) for item in items])

    def split(self, outputs: Sequence[np.ndarray[Any, Any]], items: Sequence[Any]) -> Sequence[Any]:
        """Return a result for each item, in the order of the items."""
        return [tuple(output[row] for output in outputs) for row in range(len(items))]
