"""Einsum against NumPy: diagonals, ellipses, and products of every shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("device")


def run(equation: str, *inputs: Array) -> Array:
    b = Builder(17)
    names = [b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add("Einsum", *names, outputs=["y"], equation=equation)
    b.output("y")
    with SimModel(b.to_bytes()) as model:
        result: Array = model(*inputs)[0]
        return result


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64"])
@pytest.mark.parametrize(("equation", "shapes"), [
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("btnh,nhd->btd", [(2, 3, 4, 5), (4, 5, 6)]),
    ("btd,dnh->bnth", [(2, 3, 6), (6, 4, 5)]),
    ("bhid,bhjd->bij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("ij,kl->likj", [(2, 3), (4, 5)]),
    ("ijk,jk->i", [(2, 3, 4), (3, 4)]),
    ("ij,j->", [(3, 4), (4,)]),
    ("ij,jk->ki", [(0, 4), (4, 5)]),
    ("ij,jk->ik", [(2, 0), (0, 3)]),
    ("ii", [(4, 4)]),
    ("bii->bi", [(2, 4, 4)]),
    ("iij,jk->ik", [(3, 3, 4), (4, 5)]),
    ("...ij->...ji", [(2, 3, 4)]),
    ("...ii->...i", [(2, 3, 4, 4)]),
    ("...ij,...jk", [(2, 1, 3, 4), (5, 4, 2)]),
    ("i...,i...->...i", [(2, 3), (2, 4, 1)]),
    ("...ij,jk->...ik", [(3, 4), (4, 2)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
])  # fmt: skip
def test_einsum_equals_that_of_numpy(equation: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    rng = np.random.default_rng(len(equation))
    inputs = [np.asarray(rng.standard_normal(shape) * 3).astype(dtype) for shape in shapes]
    wide = [x.astype(np.int64 if dtype == "int64" else np.float64) for x in inputs]
    got, expected = run(equation, *inputs), np.einsum(equation, *wide)
    assert got.dtype == dtype
    assert got.shape == expected.shape
    tolerance = {"float16": 1e-2, "float32": 1e-5}.get(dtype, 1e-12)
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 30)


@pytest.mark.parametrize(("equation", "message"), [
    ("ij,jk->il", "is not made of the inputs' letters"),
    ("ij,jk->ii", "is not made of the inputs' letters"),
    ("i..j,jk->ik", "does not fit the rank"),
    ("ij,ik->jk", "letter i is 2 and 3 long"),
    ("...j,...k->...jk", "dimension 0 is 2 and 3 long"),
])  # fmt: skip
def test_einsum_names_an_equation_or_shape_that_does_not_fit(equation: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        run(equation, np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))
