"""Prediction of the shapes of a model's outputs, learnt from earlier runs.

ACL needs the output buffers before a run, but gives the outputs' shapes only after it.  So the shapes
are predicted.  Each output dimension that changes is compared with a few simple rules: it is equal to
an input dimension, or the sum or the product of two, or a fixed fraction of the product of two, or it
is proportional to one.  A rule that a run contradicts is dropped.  The prediction is the largest value
that the simplest remaining rules give.  If it is too small, the run is repeated with larger buffers, so
the result is never wrong.  If it is too large, memory is wasted.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import combinations_with_replacement
from math import ceil

__all__ = ["Extents"]

Shapes = tuple[tuple[int, ...], ...]
MOST_SEEN = 512


class _Rules:
    """The rules by which one output dimension may depend on the input dimensions."""

    def __init__(self) -> None:
        self.equal: set[int] | None = None
        self.sums: set[tuple[int, int]] | None = None
        self.products: set[tuple[int, int]] | None = None
        self.shares: dict[tuple[int, int], tuple[int, int]] | None = None
        self.ratios: dict[int, float] = {}
        self.least = self.most = -1

    def learn(self, dims: tuple[int, ...], extent: int) -> None:
        pairs = list(combinations_with_replacement(range(len(dims)), 2))
        equal = {i for i, dim in enumerate(dims) if dim == extent}
        sums = {(i, j) for i, j in pairs if dims[i] + dims[j] == extent}
        products = {(i, j) for i, j in pairs if dims[i] * dims[j] == extent}
        self.equal = equal if self.equal is None else self.equal & equal
        self.sums = sums if self.sums is None else self.sums & sums
        self.products = products if self.products is None else self.products & products
        shares = {(i, j): (extent, dims[i] * dims[j]) for i, j in pairs if extent and dims[i] * dims[j]}
        self.shares = shares if self.shares is None else {
            pair: old for pair, old in self.shares.items()
            if pair in shares and shares[pair][0] * old[1] == old[0] * shares[pair][1]}
        for i, dim in enumerate(dims):
            if dim > 0:
                self.ratios[i] = max(self.ratios.get(i, 0.0), extent / dim)
        self.least = extent if self.least < 0 else min(self.least, extent)
        self.most = max(self.most, extent)

    def predict(self, dims: tuple[int, ...], declared: bool) -> int:
        """Return the predicted extent.

        `declared` is false if the model does not declare the number of dimensions; then the extent may be constant.
        """
        if self.equal:
            return max(dims[i] for i in self.equal)
        if self.sums:
            return max(dims[i] + dims[j] for i, j in self.sums)
        if self.products:
            return max(dims[i] * dims[j] for i, j in self.products)
        if not declared and self.least == self.most:
            return self.most
        if self.shares and self.least < self.most:
            return max(-(-dims[i] * dims[j] * top // bottom) for (i, j), (top, bottom) in self.shares.items())
        scaled = [ceil(ratio * dims[i]) for i, ratio in self.ratios.items() if dims[i] > 0]
        return min(max(scaled, default=0), 4 * self.most) or self.most


class Extents:
    """Predict output shapes from input shapes.

    Parameters
    ----------
    inputs, outputs : tuple of tuple of int
        The declared shapes; -1 stands for a dimension that changes.  An empty shape is that of a
        scalar, or the model does not declare the number of dimensions.
    """

    def __init__(self, inputs: Shapes, outputs: Shapes) -> None:
        self.outputs = outputs
        self.declared = [bool(shape) for shape in outputs]
        self.free = [(i, d) for i, shape in enumerate(inputs) for d, extent in enumerate(shape) if extent < 0]
        self.rules: dict[tuple[int, int], _Rules] = {}
        self.seen: OrderedDict[Shapes, Shapes] = OrderedDict()
        self.fixed = all(shape and min(shape) >= 0 for shape in outputs)

    @property
    def untaught(self) -> bool:
        """True if the outputs' shapes cannot be predicted, because they are not fixed and there was no run."""
        return not self.fixed and not self.seen

    def knows(self, inputs: Shapes) -> bool:
        """Return True if the output shapes are known: from a run with these input shapes, or because they are fixed."""
        return self.fixed or inputs in self.seen

    def predict(self, inputs: Shapes) -> Shapes | None:
        """Return the known or predicted shapes of the outputs; None before the first `learn`."""
        if self.fixed:
            return self.outputs
        if inputs in self.seen:
            return self.seen[inputs]
        if self.untaught:
            return None
        dims = tuple(inputs[i][d] for i, d in self.free)
        return tuple(
            tuple(
                self.rules[o, d].predict(dims, self.declared[o]) if extent < 0 else extent
                for d, extent in enumerate(shape))
            for o, shape in enumerate(self.outputs)
        )

    def learn(self, inputs: Shapes, outputs: Shapes) -> None:
        """Learn the output shapes of a run with the given input shapes."""
        known = self.seen.get(inputs)
        if known == outputs or self.fixed:
            return
        if known is not None and [len(shape) for shape in known] == [len(shape) for shape in outputs]:
            # The output shapes depend on the data: equal input shapes gave different ones.  Keep the larger extents.
            outputs = tuple(tuple(map(max, a, b)) for a, b in zip(known, outputs, strict=True))
        # If the model does not declare the number of dimensions, take it from the first run.
        self.outputs = tuple(
            declared if len(declared) == len(shape) else (-1,) * len(shape)
            for declared, shape in zip(self.outputs, outputs, strict=True))
        dims = tuple(inputs[i][d] for i, d in self.free)
        for o, shape in enumerate(self.outputs):
            for d, extent in enumerate(shape):
                if extent < 0:
                    self.rules.setdefault((o, d), _Rules()).learn(dims, outputs[o][d])
        self.seen[inputs] = outputs  # the last step, because a signal may raise in the lines above
        if len(self.seen) > MOST_SEEN:
            self.seen.popitem(last=False)
