"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("device")


def run(kind: str, inputs: list[Array], outputs: int = 1, **attributes: Any) -> list[Array]:
    b = Builder(13)
    names = [b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add(kind, *names, outputs=[f"y{i}" for i in range(outputs)], **attributes)
    for i in range(outputs):
        b.output(f"y{i}")
    with SimModel(b.to_bytes()) as model:
        return model(*inputs)


@pytest.mark.parametrize("ignored", [None, 2, -1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("places", [(), (4,), (2, 3)])
def test_loss_operators_equal_their_definitions(
    places: tuple[int, ...], reduction: str, weighted: bool, ignored: int | None
) -> None:
    rng = np.random.default_rng(len(places))
    scores = rng.standard_normal((3, 5, *places)).astype(np.float32)
    labels, weight = rng.integers(0, 5, (3, *places)), rng.random(5).astype(np.float32)
    labels.flat[0] = ignored or 0
    counts = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    w = np.where(counts, weight[labels] if weighted else 1.0, 0.0)
    more: dict[str, Any] = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    inputs = [labels, weight] if weighted else [labels]

    def expected(values: Array) -> Array:
        picked = np.take_along_axis(values, np.where(counts, labels, 0)[:, None], 1)[:, 0]
        each = -w * picked
        return np.asarray({"none": each, "sum": each.sum(), "mean": each.sum() / w.sum()}[reduction])

    entropy, log = run("SoftmaxCrossEntropyLoss", [scores, *inputs], 2, **more)
    np.testing.assert_allclose(entropy, expected(logs), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log, logs, rtol=1e-5, atol=1e-6)
    likelihood = run("NegativeLogLikelihoodLoss", [scores, *inputs], **more)[0]
    np.testing.assert_allclose(likelihood, expected(scores), rtol=1e-5, atol=1e-6)


def test_loss_labels_that_do_not_fit_are_refused() -> None:
    scores = np.ones((2, 3), np.float32)
    with pytest.raises(AssertionError, match="do not fit scores"):
        run("SoftmaxCrossEntropyLoss", [scores, np.zeros(3, np.int64)])
    with pytest.raises(AssertionError, match="attribute reduction: most"):
        run("SoftmaxCrossEntropyLoss", [scores, np.zeros(2, np.int64)], reduction="most")
    with pytest.raises(AssertionError):
        run("NegativeLogLikelihoodLoss", [scores, np.array([0, 3])])
