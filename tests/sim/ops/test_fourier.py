"""DFT, STFT and their windows against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.models import SimModel

from acl.tools.onnx_writer import Builder

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.usefixtures("device")


def run(kind: str, inputs: list[Array | None], opset: int = 20, **attributes: Any) -> Array:
    b = Builder(opset)
    names = ["" if x is None else b.input(f"x{i}", x.dtype.name, [None] * x.ndim) for i, x in enumerate(inputs)]
    b.add(kind, *names, outputs=["y"], **attributes)
    b.output("y")
    with SimModel(b.to_bytes()) as model:
        result: Array = model(*[x for x in inputs if x is not None])[0]
        return result


def parts(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


def close(got: Array, expected: Array) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("length", [1, 2, 7, 12, 64, 90, 101])
def test_fourier_transform_of_any_length_equals_that_of_numpy(length: int) -> None:
    x = normal(2, length, 2)
    wide = x[..., 0] + 1j * x[..., 1]
    close(run("DFT", [x]), parts(np.fft.fft(wide)))
    close(run("DFT", [x], inverse=1), parts(np.fft.ifft(wide)))
    close(run("DFT", [x[..., :1]], onesided=1), parts(np.fft.rfft(x[..., 0])))


@pytest.mark.parametrize("length", [5, 8, 13])
def test_fourier_transform_length_cuts_or_pads_the_input(length: int) -> None:
    x = normal(3, 8, 4, 1)
    close(run("DFT", [x, np.array(length), np.array(1)]), parts(np.fft.fft(x[..., 0], length, 1)))
    close(run("DFT", [x, np.array(length), np.array(-2)]), parts(np.fft.fft(x[..., 0], length, 2)))
    close(run("DFT", [x, np.array(length)], opset=17, axis=1), parts(np.fft.fft(x[..., 0], length, 1)))


@pytest.mark.parametrize("length", [8, 9])
def test_half_spectrum_is_transformed_back_to_the_signal(length: int) -> None:
    x = normal(3, length)
    half = parts(np.fft.rfft(x)).astype(np.float32)
    close(run("DFT", [half, np.array(length)], inverse=1, onesided=1), x[..., None])


@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_fourier_transform_splits_a_signal_into_frames(onesided: int) -> None:
    signal, window = normal(2, 50), np.hanning(16).astype(np.float32)
    frames = np.stack([signal[:, at : at + 16] for at in range(0, 35, 5)], 1)
    expected = parts(np.fft.fft(frames * window)[..., : 9 if onesided else 16])
    close(run("STFT", [signal[..., None], np.array(5), window], onesided=onesided), expected)
    plain = parts(np.fft.fft(frames)[..., : 9 if onesided else 16])
    close(run("STFT", [signal[..., None], np.array(5), None, np.array(16)], onesided=onesided), plain)


@pytest.mark.parametrize("periodic", [0, 1])
def test_window_functions_equal_their_definitions(periodic: int) -> None:
    for kind, expected in (("HannWindow", np.hanning(11 + periodic)), ("BlackmanWindow", np.blackman(11 + periodic))):
        close(run(kind, [np.array(11)], periodic=periodic), expected[:11].astype(np.float32))
    turns = 2 * np.pi * np.arange(11) / (10 + periodic)
    close(run("HammingWindow", [np.array(11)], periodic=periodic), 25 / 46 - 21 / 46 * np.cos(turns))


@pytest.mark.parametrize(("kind", "inputs", "message"), [
    ("DFT", [normal(2, 8, 3)], "a last dimension of 1 or 2"),
    ("DFT", [normal(2, 8, 1), np.array(0)], "length 0"),
    ("STFT", [normal(2, 8), np.array(0), normal(4)], "frames of 4"),
    ("STFT", [normal(2, 8), np.array(2), normal(9)], "frames of 9"),
    ("HannWindow", [np.array(-1)], "expected a size"),
])  # fmt: skip
def test_fourier_transform_names_an_argument_that_does_not_fit(
    kind: str, inputs: list[Array | None], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        run(kind, inputs)
