"""The computation of the service: an embedding of a text, by a transformer encoder.

The model and its weights come from `acl.samples`, so nothing is downloaded. The numbers
mean nothing, but each answer can be checked.  A task joins requests into a batch and splits the batch's
results; it has no code for devices, streams or HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from acl.samples import WIDTH, encoder
from acl.serving import Task

__all__ = ["TextTask"]

LONGEST = 512


class TextTask(Task):
    """Turns texts into vectors: takes a row of a fixed table for each byte, runs an encoder, averages over the text."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.layers = layers
        self.table = np.random.default_rng(7).standard_normal((256, WIDTH)).astype(np.float32)

    def model(self) -> bytes:
        """Return the ONNX file."""
        return encoder(self.layers).to_bytes()

    def item(self, text: str) -> np.ndarray[Any, Any]:
        """Return a request's input: [length, width]; raise ValueError if the text is empty or too long."""
        data = np.frombuffer(text.encode(), np.uint8)
        if not 1 <= data.size <= LONGEST:
            raise ValueError(f"input must have 1 to {LONGEST} bytes, not {data.size}")
        rows: np.ndarray[Any, Any] = self.table[data]
        return rows

    def goes_with(self, first: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
        """Return True if two requests may share a batch without much padding."""
        return max(len(first), len(other)) <= 32 + 2 * min(len(first), len(other))

    def padded_bytes(self, items: Sequence[np.ndarray[Any, Any]]) -> int:
        """Return the bytes of a batch's inputs."""
        return len(items) * max(len(item) for item in items) * (WIDTH + 1) * 4

    def collate(self, items: Sequence[np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Return the model's inputs for a batch; a mask marks the padding."""
        longest = max(len(item) for item in items)
        tokens = np.zeros((len(items), longest, WIDTH), np.float32)
        mask = np.zeros((len(items), longest), np.float32)
        for row, item in enumerate(items):
            tokens[row, : len(item)] = item
            mask[row, : len(item)] = 1
        return {"tokens": tokens, "mask": mask}

    def split(
        self, outputs: Sequence[np.ndarray[Any, Any]], items: Sequence[np.ndarray[Any, Any]]
    ) -> list[list[float]]:
        """Return a result for each request of a batch."""
        (encoded,) = outputs
        return [encoded[row, : len(item)].mean(axis=0).tolist() for row, item in enumerate(items)]
