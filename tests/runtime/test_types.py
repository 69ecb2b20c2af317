"""Inputs of operators and models: each type is converted correctly, or refused with the name of the input."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

import acl
from acl.runtime._given import host_array
from acl.runtime._tensor import BIT_TYPES, DTYPE_CODES, TensorInfo

needs_ml_dtypes = pytest.mark.skipif(
    importlib.util.find_spec("ml_dtypes") is None, reason="ml_dtypes is not installed")
FLOAT8 = sorted(name for name in BIT_TYPES if name.startswith("float8"))


def bits(name: str, values: list[float]) -> tuple[Any, Any]:
    """Return values as an array of ml_dtypes, and as an array of their bits."""
    import ml_dtypes

    array = np.array(values, "f4").astype(getattr(ml_dtypes, name))
    return array, array.view(BIT_TYPES[name])


@needs_ml_dtypes
@pytest.mark.parametrize("name", sorted(BIT_TYPES))
def test_array_of_ml_dtypes_keeps_its_type_and_bits(name: str) -> None:
    array, expected = bits(name, [0.5, 1.0, 2.0])
    for info in (None, TensorInfo("x", name, (3,))):
        got, kind = host_array(array, "input 'x'", info)
        assert kind == name
        np.testing.assert_array_equal(got, expected, strict=True)


@needs_ml_dtypes
@pytest.mark.parametrize("name", sorted(BIT_TYPES))
def test_numbers_are_rounded_to_the_wanted_type(name: str) -> None:
    got, kind = host_array([0.5, 1.0, 3.0], "input 'x'", TensorInfo("x", name, (3,)))
    assert kind == name
    np.testing.assert_array_equal(got, bits(name, [0.5, 1.0, 3.0])[1], strict=True)


@needs_ml_dtypes
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_number_beyond_an_8_bit_float_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=rf"input 'x': expected {name} \[1\]: a number does not fit"):
        host_array([1e6], "input 'x'", TensorInfo("x", name, (1,)))


def test_numbers_for_an_8_bit_float_without_ml_dtypes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(TypeError, match=r"input 'x': expected float8_e5m2 .* ml_dtypes"):
        host_array([1.0], "input 'x'", TensorInfo("x", "float8_e5m2", (1,)))
    got, kind = host_array(np.array([60], "u1"), "input 'x'", TensorInfo("x", "float8_e5m2", (1,)))
    assert (got.tolist(), kind) == ([60], "float8_e5m2")


@needs_ml_dtypes
def test_operator_takes_an_array_of_ml_dtypes_as_its_own_type(stream: acl.Stream) -> None:
    # If the bits were added as integers, 1.0 + 1.0 would be 0x7f00, a meaningless number.
    one = bits("bfloat16", [1.0])[0]
    (result,) = acl.Op("Add")(one, one, stream=stream)
    assert result.dtype == "bfloat16"
    assert result.numpy().tolist() == [0x4000]


@pytest.mark.parametrize("name", FLOAT8)
def test_array_of_8_bit_floats_goes_through_dlpack(name: str) -> None:
    with acl.Pool(0) as pool, pool.empty((2, 3), name) as array:
        assert array.nbytes == 6
        taken = acl.from_dlpack(array)
        assert (taken.dtype, taken.shape) == (name, (2, 3))
        assert array.__npu_array_interface__["typestr"] == "|V1"
        del taken


@pytest.mark.parametrize("name", sorted(set(DTYPE_CODES) - set(BIT_TYPES)))
def test_every_element_type_is_taken_in_either_byte_order(name: str) -> None:
    array = np.array([0, 1, 1], np.dtype(name).newbyteorder(">"))
    got, kind = host_array(array, "input 'x'", TensorInfo("x", name, (3,)))
    assert kind == name and got.dtype == np.dtype(name) and got.tolist() == array.tolist()


@pytest.mark.parametrize("value", [
    np.array(["a"]), np.array([None]), np.array(["2020-01-01"], "M8[D]"), np.zeros(2, "f4,i4"), np.array([b"ab"]),
    "text", {"a": 1}, object(),
])
def test_value_that_is_no_number_is_refused_by_name(value: Any) -> None:
    for info in (None, TensorInfo("x", "float32", (1,))):
        with pytest.raises((TypeError, ValueError), match=r"^input 'x'"):
            host_array(value, "input 'x'", info)
