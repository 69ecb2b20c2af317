"""Engines for tests: a small model whose kernel fails for some requests, and a task whose batches a test can stop."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from acl.serving import Engine, Options, Result, Task
from acl.tools.onnx_writer import Builder

__all__ = ["ROWS", "HeldTask", "engine_of", "outcome", "table_model"]

ROWS = 10                       # rows of the table; the kernel fails for larger indices


def table_model(first: float = 0.0, weights: int = 0) -> bytes:
    """Return a model of y = table[ids] with table[k] = first + k, for ids of [n, m], and `weights` bytes of weights."""
    b = Builder()
    table = np.float32(first) + np.arange(ROWS, dtype=np.float32).reshape(ROWS, 1)
    taken = b.add("Gather", b.constant(table), b.input("ids", "int64", ["n", "m"]))
    if weights:
        many = b.add("MatMul", taken, b.constant(np.zeros((1, weights // 4), np.float32)))
        taken = b.add("Add", taken, b.add("ReduceMax", many, axes=[-1]))
    b.add("Relu", taken, outputs=["y"])
    b.output("y", "float32", ["n", "m", 1])
    return b.to_bytes()


class HeldTask(Task):
    """A task that looks up rows of the table.  It records the ids of each batch, and waits for `gate` before the batch.

    Attributes
    ----------
    seen : list
        The first id of each item, batch by batch.
    inside : threading.Event
        Set when a batch waits for `gate`.
    """

    def __init__(self, first: float = 0.0, weights: int = 0, held: bool = False) -> None:
        super().__init__(table_model(first, weights))
        self.seen: list[list[int]] = []
        self.inside, self.gate = threading.Event(), threading.Event()
        if not held:
            self.gate.set()

    def collate(self, items: Sequence[Any]) -> Any:
        self.seen.append([int(item[0]) for item in items])
        self.inside.set()
        assert self.gate.wait(60)
        return super().collate(items)

    def split(self, outputs: Any, items: Sequence[Any]) -> list[Any]:
        return [float(outputs[0][row, 0, 0]) for row in range(len(items))]


def engine_of(task: Task, name: str = "table", **options: Any) -> Engine:
    """Return an engine with one loaded model."""
    made = Engine(Options(**{"limit": "64MiB", "lanes": 1, **options}))
    made.load(name, task)
    return made


def outcome(future: Future[Result]) -> str:
    """Return "answered", or the name of the exception with which the request failed."""
    try:
        future.result(300)
    except Exception as error:
        return type(error).__name__
    return "answered"
