"""Initializers whose data is in a file beside the model."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from support.calls import api, out
from support.models import SimModel, sim_message

from acl.tools.onnx_writer import Builder

pytestmark = pytest.mark.usefixtures("device")


def product(location: str, offset: int = 0) -> Builder:
    """Return a model of x times a matrix [3, 2] from a file."""
    b = Builder(21)
    b.add("MatMul", b.input("x", "float32", ["n", 3]), b.outside("float32", [3, 2], location, offset), outputs=["y"])
    b.output("y")
    return b


class FileModel(SimModel):
    """A model that is loaded from a file."""

    def __init__(self, path: Path) -> None:
        number = out(ctypes.c_uint32)
        status = api.aclmdlLoadFromFile(str(path).encode(), ctypes.byref(number))
        assert status == 0, f"{status}: {sim_message()}"
        self.id, self.outputs = number.value, 1


def test_weights_are_read_from_a_file_at_an_offset(tmp_path: Path) -> None:
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    (tmp_path / "w.bin").write_bytes(bytes(64) + weights.tobytes())
    (tmp_path / "m.onnx").write_bytes(product("w.bin", 64).to_bytes())
    given = np.ones((2, 3), np.float32)
    with FileModel(tmp_path / "m.onnx") as model:
        np.testing.assert_array_equal(model(given)[0], given @ weights)


def test_four_bit_weights_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes([0x8F, 0x17, 0x02]))
    b = Builder(21)
    weights = b.outside("int4", [5], "w.bin")
    b.add("Add", b.input("x", "float32", ["n"]), b.add("Cast", weights, to=1), outputs=["y"])
    b.output("y")
    (tmp_path / "m.onnx").write_bytes(b.to_bytes())
    with FileModel(tmp_path / "m.onnx") as model:
        np.testing.assert_array_equal(model(np.zeros(5, np.float32))[0], [-1, -8, 7, 1, 2])


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("w.bin", "w.bin has 20 of 24 bytes"),
        ("none.bin", "none.bin has 0 of 24 bytes"),
        ("../w.bin", "external data at ../w.bin cannot be read"),
        ("/etc/passwd", "external data at /etc/passwd cannot be read"),
    ],
)
def test_external_data_file_that_is_short_missing_or_outside_is_refused(
    location: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    (tmp_path / "w.bin").write_bytes(bytes(20))
    (tmp_path / "m.onnx").write_bytes(product(location).to_bytes())
    with pytest.raises(AssertionError, match=f"100013.*{words}"):
        FileModel(tmp_path / "m.onnx")


def test_model_from_memory_cannot_use_external_data_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    with pytest.raises(AssertionError, match=r"100013.*cannot be read for a model from memory"):
        SimModel(product("w.bin").to_bytes())
