"""The code under test: scores of documents for a query, computed on an Ascend device."""

from __future__ import annotations

import torch


class Scorer:
    """Keeps the vectors of documents on a device: the first device with enough free memory."""

    def __init__(self, vectors: torch.Tensor) -> None:
        self._vectors = self._place(vectors)

    @staticmethod
    def _place(vectors: torch.Tensor) -> torch.Tensor:
        for device in range(torch.npu.device_count()):
            try:
                return vectors.to(f"npu:{device}")
            except torch.OutOfMemoryError:
                continue
        raise MemoryError(f"no device has {vectors.nbytes} bytes for the documents")

    @property
    def device(self) -> torch.device:
        return self._vectors.device

    def scores(self, query: torch.Tensor) -> torch.Tensor:
        """Return one score for each document; if the device fails, the host computes them."""
        try:
            return (self._vectors @ query.to(self.device)).cpu()
        except RuntimeError:
            return self._vectors.cpu() @ query
