"""Small models with subgraphs and with sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from acl.tools.onnx_writer import Builder

__all__ = ["appending", "branching", "power_loop", "scalar"]


def scalar(value: object, dtype: str = "int64") -> np.ndarray[Any, Any]:
    return np.array(value, dtype)


def branching() -> Builder:
    """Return a model of relu(x) * 2 if flag, else tanh(-relu(x)); both branches use the outer graph's relu(x)."""
    b = Builder()
    flag = b.input("flag", "bool", [])
    shared = b.add("Relu", b.input("x", "float32", ["n", 4]), outputs=["shared"])
    yes, no = Builder(name="yes"), Builder(name="no")
    yes.add("Mul", shared, yes.constant(scalar(2, "float32"), "factor"), outputs=["y"])
    yes.output("y")
    no.add("Tanh", no.add("Neg", shared, outputs=["factor"]), outputs=["y"])
    no.output("y")
    b.add("If", flag, outputs=["z"], then_branch=yes, else_branch=no)
    b.output("z")
    return b


def power_loop(limit: float = np.inf) -> Builder:
    """Return a loop of state = state * x + i until the state's sum reaches the limit; the outputs are all states."""
    b, body = Builder(), Builder()
    trip = b.input("trip", "int64", [])
    x = b.input("x", "float32", ["n"])
    turn, _ = body.input("turn", "int64", []), body.input("go", "bool", [])
    state = body.input("state", "float32", None)
    made = body.add("Add", body.add("Mul", state, x), body.add("Cast", turn, to=1))
    body.add("Identity", made, outputs=["next"])
    total = body.add("ReduceSum", made, keepdims=0)
    body.add("Less", total, body.constant(scalar(limit, "float32")), outputs=["again"])
    body.add("Identity", made, outputs=["each"])
    body.output("again", "bool", [])
    body.output("next", "float32", None)
    body.output("each", "float32", ["n"])
    b.add("Loop", trip, "", x, outputs=["last", "all"], body=body)
    b.output("last")
    b.output("all")
    return b


def appending() -> Builder:
    """Return a model in which a loop appends to a sequence, which is stacked later; TorchScript exports lists so."""
    b, body = Builder(), Builder()
    x = b.input("x", "float32", ["n", "m"])
    rows = b.add("Gather", b.add("Shape", x), b.constant(scalar(0)))
    turn, go = body.input("turn", "int64", []), body.input("go", "bool", [])
    body.input("list", "float32", None)
    body.add("Identity", go, outputs=["again"])
    body.add("SequenceInsert", "list", body.add("Neg", body.add("Gather", x, turn)), outputs=["longer"])
    body.output("again", "bool", [])
    body.output("longer")
    made = b.add("Loop", rows, "", b.add("SequenceEmpty"), body=body)
    b.add("SequenceLength", made, outputs=["length"])
    b.add("SequenceAt", made, b.constant(scalar(-1)), outputs=["last"])
    b.add("ConcatFromSequence", b.add("SequenceErase", made, b.constant(scalar(0))), axis=0, outputs=["joined"])
    b.add("ConcatFromSequence", made, axis=1, new_axis=1, outputs=["stacked"])
    b.output("length", "int64")
    for name in ("last", "joined", "stacked"):
        b.output(name)
    return b
