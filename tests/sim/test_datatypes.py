"""Half precision, converted as by the runtime's host code, and element sizes."""

from __future__ import annotations

import math
import random
import struct

import numpy as np
import pytest
from support.calls import api

# Results of the runtime's own code (shared/probes/golden.txt, fp16).
OBSERVED = [
    (0.0, 0x0), (-0.0, 0x8000), (1.0, 0x3C00), (1.625, 0x3E80), (65504.0, 0x7BFF), (65505.0, 0x7BFF),
    (65520.0, 0x7BFF), (1e30, 0x7BFF), (-1e30, 0xFBFF), (6e-8, 0x1), (3e-8, 0x1), (2.9e-8, 0x0),
    (float("nan"), 0x7BFF), (float("inf"), 0x7BFF), (1 + 2**-11, 0x3C00), (1 + 3 * 2**-11, 0x3C02),
]


@pytest.mark.parametrize(("value", "half"), OBSERVED)
def test_float_to_half_conversions_equal_those_observed_on_a_device(value: float, half: int) -> None:
    assert api.aclFloatToFloat16(value) == half


def test_each_finite_half_survives_a_round_trip() -> None:
    for half in range(0x10000):
        value = api.aclFloat16ToFloat(half)
        if half & 0x7C00 != 0x7C00:
            assert value == float(np.uint16(half).view(np.float16))
            assert api.aclFloatToFloat16(value) == half
        else:
            sign = -1 if half & 0x8000 else 1
            assert value == sign * (1 + (half & 0x3FF) / 1024) * 65536  # exponent 31 means a number, not inf or nan


def test_rounding_to_half_equals_ieee_below_the_largest() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)
    for _ in range(20000):
        value = struct.unpack("<f", struct.pack("<I", source.randrange(2**32)))[0]
        if math.isnan(value) or abs(value) > 65504:
            continue
        expected = int(np.float32(value).astype(np.float16).view(np.uint16))
        assert api.aclFloatToFloat16(value) == expected, value


def test_element_sizes_of_all_types_are_right() -> None:
    observed = [0, 4, 2, 1, 4, 1, 8, 2, 2, 4, 8, 8, 8, 1, 0, 8, 8, 8, 16, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2, 8, 1, 1, 8, 8,
                4, 1, 1, 1, 1, 8, 8]
    assert [api.aclDataTypeSize(i) for i in range(-1, 40)] == observed
