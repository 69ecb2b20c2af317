"""Damaged and wrong model files: refused or read, never a crash (the sanitizers' lane runs this too)."""

from __future__ import annotations

import ctypes
import random
import resource

import numpy as np
import pytest
from support.calls import api, out
from support.models import SimModel, sim_message
from support.requests import small_model

from acl.tools.onnx_writer import Builder, Reference

pytestmark = pytest.mark.usefixtures("device")

FLIPS = 1500


@pytest.fixture(autouse=True)
def builtin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")


def tried(data: bytes) -> int:
    """Load a model from memory and return the code; unload it if it was loaded."""
    number = out(ctypes.c_uint32)
    status: int = api.aclmdlLoadFromMem(data, len(data), ctypes.byref(number))
    if status == 0:
        assert api.aclmdlUnload(number.value) == 0
    else:
        assert sim_message()
    return status


def nested() -> bytes:
    """Return a model with a branch in a loop, a function, a sequence, packed and typed constants."""
    b, body, yes, no, half = (Builder(21) for _ in range(5))
    half.add("LeakyRelu", half.input("x", "float32", None), alpha=Reference("slope", 1), outputs=["y"])
    half.output("y")
    x = b.input("x", "float32", ["n", 4])
    body.input("turn", "int64", [])
    body.input("go", "bool", [])
    body.input("list", "float32", None)
    for branch, kind in ((yes, "Neg"), (no, "Exp")):
        branch.add(kind, x, outputs=["z"])
        branch.output("z")
    chosen = body.add("If", "go", then_branch=yes, else_branch=no)
    body.add("SequenceInsert", "list", body.add("Half", chosen, domain="local", slope=0.5), outputs=["longer"])
    body.add("Identity", "go", outputs=["again"])
    body.output("again", "bool", [])
    body.output("longer")
    made = b.add("Loop", b.constant(np.array(2, np.int64)), "", b.add("SequenceEmpty"), body=body)
    weight = b.add("DequantizeLinear", b.constant(np.arange(4, dtype=np.int8), narrow="int4"),
                   b.constant(np.float32(0.5)))
    joined = b.add("Add", b.add("ConcatFromSequence", made, axis=0), weight)
    b.add("Add", joined, b.add("Constant", value=np.ones(4, np.float32)), outputs=["y"])
    b.output("y")
    return b.to_bytes({"made": "here"}, {"Half": half})


MODELS = {"nested": nested, "small": lambda: small_model().to_bytes()}


@pytest.mark.parametrize("name", MODELS)
def test_model_file_that_ends_early_does_not_crash(name: str) -> None:
    data = MODELS[name]()
    assert tried(data) == 0
    for length in range(1, len(data)):
        tried(data[:length])


@pytest.mark.parametrize("name", MODELS)
def test_model_file_with_wrong_bits_does_not_crash(name: str) -> None:
    data, seed = MODELS[name](), 20
    print(f"seed {seed}")
    rng, loaded = random.Random(seed), 0
    for _ in range(FLIPS):
        made = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 5])):
            made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
        loaded += tried(bytes(made)) == 0
    assert 0 < loaded < FLIPS


def test_attribute_whose_value_contradicts_its_type_is_refused() -> None:
    """The attribute's type says tensor, but the field with the tensor has an unknown number."""
    b = Builder()
    b.add("Constant", value=np.array([7.5], np.float32), outputs=["y"])
    b.output("y")
    data = b.to_bytes()
    broken = data.replace(b"\x0a\x05value\x2a", b"\x0a\x05value\x7a")
    assert broken != data
    assert tried(data) == 0
    assert tried(broken) == 100013
    assert "has no supported value" in sim_message()


@pytest.mark.parametrize("value", ["text", ["several", "texts"], [0.5, 1.5], 3])
def test_value_of_a_wrong_kind_in_a_model_file_is_refused(value: object) -> None:
    b = Builder()
    b.add("Constant", value_ints=value, outputs=["y"])
    b.output("y", "int64")
    assert tried(b.to_bytes()) == 100013
    assert "has no supported value" in sim_message()


def test_nested_model_gives_right_results() -> None:
    given = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    part = np.where(-given < 0, -given * np.float32(0.5), -given)
    with SimModel(nested()) as model:
        got = model(given)[0]
    np.testing.assert_allclose(got, np.concatenate([part, part]) + np.arange(4) * 0.5 + 1, rtol=1e-6)


@pytest.mark.parametrize("kind", ["ConstantOfShape", "chain"])
def test_constants_cannot_be_larger_than_their_file_justifies(kind: str) -> None:
    """A file of a few bytes that defines a constant of a gigabyte is refused before the memory is allocated."""
    b = Builder(17)
    if kind == "chain":
        x = b.constant(np.ones(1024, np.float32))
        for _ in range(18):
            x = b.add("Concat", x, x, axis=0)
    else:
        x = b.add(kind, b.constant(np.array([1 << 28], np.int64)))
    b.add("Identity", x, outputs=["y"])
    b.output("y")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert tried(b.to_bytes()) == 100013
    assert "bytes" in sim_message()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 700 << 10     # in KiB
