"""Traces of whole nets for `aclpool replay`: `python bench/trace_nets.py FOLDER [NET ...]`.

Needs torch, transformers and torchvision.  No weights are loaded and nothing is computed.  A net runs on meta tensors
at full width and depth, at a few shapes; each operator is logged with the storages that it reads and makes.  The size
of every storage is then fitted exactly by a polynomial of the shape (batch, length, height, ...), and checked at
another shape.  So a step of any further shape is computed in a millisecond.

Lifetimes are GE's: an operator's outputs are allocated, then its workspace, which is freed when the operator
is queued; then the storages that this operator used last are freed.  Views and weights make no events.  Inputs are
live during their step, outputs from before it until two steps later.  Sizes are those that a registered allocator gets:
tensors rounded up to 32 bytes plus 32, workspaces multiples of 512.  Workspaces are modelled: 16 MiB for operators
that multiply, sort or scatter, 768 KiB for large reductions.  Attention is one operator; nothing else is fused.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")

import torch
import torch.nn.functional as functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MIB = 1 << 20
SYSTEM = 16 * MIB
HEAVY = {"mm", "addmm", "bmm", "baddbmm", "convolution", "attention", "topk", "sort", "scatter", "index_add_"}
REDUCTIONS = {"native_layer_norm", "native_group_norm", "native_batch_norm", "mean", "sum", "var_mean", "_softmax"}
Call = Callable[..., tuple[Sequence[torch.Tensor], Callable[[], Any]]]
Shape = tuple[int, ...]


# ---- one step of a net ----

def tensors_of(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class Log(TorchDispatchMode):  # type: ignore[misc]
    """Logs every operator: storages read, storages made, and the data that determines its workspace."""

    def __init__(self, weights: set[int]) -> None:
        super().__init__()
        self.weights = weights
        self.kept: dict[int, Any] = {}      # keeps the storages alive, so that no address is used twice
        self.operators: list[tuple[list[int], list[int], str, int]] = []

    def storages(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        found = []
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self.weights:
                self.kept.setdefault(storage._cdata, storage)
                found.append(storage._cdata)
        return list(dict.fromkeys(found))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        reads = tensors_of((args, kwargs))
        sources = self.storages(reads)
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        self.operators.append((sources, self.storages(tensors_of(result)), name, reads[0].numel() if reads else 0))
        return result


def workspace(name: str, count: int) -> int:
    """Return the workspace of an operator whose first input has `count` elements."""
    if name in HEAVY:
        return SYSTEM
    return 768 * 1024 if name in REDUCTIONS and count > MIB else 0


@dataclass
class Step:
    """One step of a net.  An event is a number: n allocates storage n, ~n frees it.

    Tensors have the first numbers, workspaces the numbers after them.
    """

    events: np.ndarray
    inputs: list[int]
    outputs: list[int]
    bytes: np.ndarray           # bytes of each tensor
    names: list[str]            # for each workspace: the name of its operator
    counts: np.ndarray          # for each workspace: the elements of its operator's first input

    def sizes(self) -> np.ndarray:
        """Return the requested sizes; 0 for a workspace that is not needed."""
        work = [workspace(name, count) for name, count in zip(self.names, self.counts.tolist(), strict=True)]
        return np.concatenate([(self.bytes + 31) // 32 * 32 + 32, np.array(work, np.int64)])


def events_of(log: Log, outside: set[int], number: dict[int, int]) -> tuple[list[int], list[str], list[int]]:
    """Return the events of the operators' results and workspaces (see `Step`), and `names` and `counts` of `Step`."""
    last = {storage: at for at, (reads, makes, *_) in enumerate(log.operators) for storage in reads + makes}
    known, born = set(outside), set[int]()
    tape: list[tuple[bool, int]] = []       # for each event: (is it a workspace, its number)
    names, counts = [], []
    for at, (reads, makes, name, count) in enumerate(log.operators):
        for storage in makes:
            if storage not in known and log.kept[storage].nbytes():
                known.add(storage)
                born.add(storage)
                tape.append((False, number.setdefault(storage, len(number))))
        if name in HEAVY or name in REDUCTIONS:
            tape.append((True, len(names)))
            names.append(name)
            counts.append(count)
        for storage in dict.fromkeys(reads + makes):
            if storage in born and last[storage] == at:
                tape.append((False, ~number[storage]))
    flat = []
    for is_work, which in tape:
        flat += [len(number) + which, ~(len(number) + which)] if is_work else [which]
    return flat, names, counts


def traced(weights: set[int], call: Call, shape: Shape) -> Step:
    """Run the net once at a shape, and return the step."""
    inputs, run = call(*shape)
    log = Log(weights)
    with torch.no_grad(), log:
        result = run()
    taken = log.storages(inputs)
    given = [storage for storage in log.storages(tensors_of(result)) if storage not in taken]
    number = {storage: at for at, storage in enumerate([*taken, *given])}
    events, names, counts = events_of(log, set(number), number)
    sizes = np.array([log.kept[storage].nbytes() for storage in number], np.int64)
    return Step(np.array(events, np.int64), [number[s] for s in taken], [number[s] for s in given], sizes, names,
                np.array(counts, np.int64))


class Net:
    """Makes steps of any shape, from a grid of traced ones.

    Parameters
    ----------
    call
        A function of a shape; returns the inputs, and a function that runs the net on them.
    axes
        For each part of a shape, the values to trace; there must be one more than its highest power in any size.
    check
        A shape at which a made step must equal a traced one.
    """

    def __init__(self, module: torch.nn.Module, call: Call, axes: Sequence[Sequence[int]], check: Shape) -> None:
        weights = {t.untyped_storage()._cdata for t in [*module.parameters(), *module.buffers()]}
        grid = list(itertools.product(*axes))
        steps = [traced(weights, call, shape) for shape in grid]
        self.first = steps[0]
        if any(not np.array_equal(step.events, self.first.events) for step in steps):
            raise ValueError("the operators depend on the shape")
        self.scale = [max(axis) for axis in axes]
        self.powers = list(itertools.product(*(range(len(axis)) for axis in axes)))
        terms = np.array([self.terms(shape) for shape in grid])
        self.bytes = np.linalg.solve(terms, np.array([step.bytes for step in steps], float))
        self.counts = np.linalg.solve(terms, np.array([step.counts for step in steps], float))
        if not np.array_equal(self.step(check).sizes(), traced(weights, call, check).sizes()):
            raise ValueError(f"the sizes at {check} are not what the polynomials say")

    def terms(self, shape: Shape) -> list[float]:
        ratios = [part / scale for part, scale in zip(shape, self.scale, strict=True)]
        return [float(np.prod([r ** e for r, e in zip(ratios, powers, strict=True)])) for powers in self.powers]

    def step(self, shape: Shape) -> Step:
        terms = np.array(self.terms(shape))
        return Step(self.first.events, self.first.inputs, self.first.outputs,
                    np.rint(terms @ self.bytes).astype(np.int64), self.first.names,
                    np.rint(terms @ self.counts).astype(np.int64))


# ---- the nets ----

def attention_as_one_operator() -> None:
    """Replace torch's attention, which transformers uses too, by one operator with the inputs q, k and v."""
    library = torch.library.Library("trace_nets", "DEF")
    library.define("attention(Tensor q, Tensor k, Tensor v) -> Tensor")
    library.impl("attention", lambda q, k, v: q.new_empty((*q.shape[:-1], v.shape[-1])), "Meta")
    attention_as_one_operator.library = library     # type: ignore[attr-defined]  # lives as long as this function

    def attention(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> Any:
        return torch.ops.trace_nets.attention(q, k, v)

    functional.scaled_dot_product_attention = attention
    torch._C._nn.scaled_dot_product_attention = attention


def empty(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def on_meta(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    with torch.device("meta"):
        return make().half().eval()


def bert_large() -> Net:
    from transformers import BertConfig, BertModel

    model = on_meta(lambda: BertModel(BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)))

    def call(batch: int, length: int) -> Any:
        ids, kinds = empty(batch, length, dtype=torch.long), empty(batch, length, dtype=torch.long)
        return (ids, kinds), lambda: tuple(model(input_ids=ids, token_type_ids=kinds).values())

    return Net(model, call, ((2, 4), (16, 64)), (7, 333))


def vit_large() -> Net:
    from transformers import ViTConfig, ViTModel

    model = on_meta(lambda: ViTModel(ViTConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)))

    def call(batch: int, height: int, width: int) -> Any:
        image = empty(batch, 3, height, width)
        return (image,), lambda: model(image, interpolate_pos_encoding=True).last_hidden_state

    return Net(model, call, ((2, 3), (96, 160), (96, 192)), (5, 112, 240))


def of_torchvision(name: str) -> Net:
    import torchvision

    model = on_meta(lambda: getattr(torchvision.models, name)(weights=None))

    def call(batch: int, height: int, width: int) -> Any:
        image = empty(batch, 3, height, width)
        return (image,), lambda: model(image)

    return Net(model, call, ((2, 3), (160, 224), (160, 224)), (5, 320, 512))


def texts(dice: random.Random, count: int, most: int = 65) -> Iterator[Shape]:
    for _ in range(count):
        yield dice.randrange(1, most), dice.randrange(16, 513)


def images(dice: random.Random, count: int) -> Iterator[Shape]:
    for _ in range(count):
        yield dice.randrange(1, 33), 32 * dice.randrange(5, 17), 32 * dice.randrange(5, 17)


# ---- traces ----

class Tape:
    """A trace that is being made: the events so far, and the outputs that the user still holds."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rows: list[np.ndarray] = []        # arrays with five rows: op, id, size, step, stream
        self.steps = self.count = 0
        self.held: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}

    def put(self, op: Any, ids: Any, size: Any, stream: int) -> None:
        row = np.empty((5, len(ids)), np.int64)
        row[0], row[1], row[2], row[3], row[4] = op, ids, size, self.steps, stream
        self.rows.append(row)

    def run(self, step: Step, stream: int, most: int = 0) -> Iterator[None]:
        """Add a step in slices of at most `most` events, or all at once if it is 0."""
        sizes, base = step.sizes(), self.count
        self.count += len(sizes)
        outputs, inputs = np.array(step.outputs, np.int64), np.array(step.inputs, np.int64)
        for own in (outputs, inputs):
            self.put(0, base + own, sizes[own], stream)
        which = np.where(step.events < 0, ~step.events, step.events)
        kept = sizes[which] > 0
        op, which = (step.events < 0)[kept], which[kept]
        at = 0
        while at < len(op):
            end = at + self.dice.randrange(1, most) if most else len(op)
            self.put(op[at:end], base + which[at:end], sizes[which[at:end]], stream)
            at = end
            yield
        self.put(1, base + inputs, sizes[inputs], stream)
        held = self.held.setdefault(stream, [])
        held.append((base + outputs, sizes[outputs]))
        if len(held) > 2:
            self.put(1, *held.pop(0), stream)
        self.steps += 1

    def in_turn(self, works: Sequence[tuple[Net, Iterator[Shape]]], fewest: int, most: int) -> None:
        """Add a random number of steps of one net, then of the next, each net on its own stream."""
        for turn in itertools.count():
            stream = turn % len(works)
            net, shapes = works[stream]
            for _ in range(self.dice.randrange(fewest, most)):
                shape = next(shapes, None)
                if shape is None:
                    return
                list(self.run(net.step(shape), stream))

    def interleaved(self, works: Sequence[tuple[Net, Iterator[Shape]]], most: int) -> None:
        """Add the steps of all nets at the same time, in slices of random length."""
        def steps(stream: int, net: Net, shapes: Iterator[Shape]) -> Iterator[None]:
            for shape in shapes:
                yield from self.run(net.step(shape), stream, most)

        running = [steps(stream, net, shapes) for stream, (net, shapes) in enumerate(works)]
        while running:
            one = self.dice.choice(running)
            if next(one, running) is running:
                running.remove(one)

    def save(self, file: Path) -> str:
        for stream, held in self.held.items():
            for ids, sizes in held:
                self.put(1, ids, sizes, stream)
        op, ids, size, step, stream = np.concatenate(self.rows, axis=1)
        np.savez_compressed(file, op=op.astype(np.uint8), id=ids.astype(np.uint32), size=size.astype(np.uint64),
                            step=step.astype(np.uint32), stream=stream.astype(np.uint8))
        peak = int(np.cumsum(np.where(op, -size, size)).max()) / MIB
        return f"{file.stem}: {len(op):,} events, {self.steps} steps, live peak {peak:,.0f} MiB"


def one(net: Callable[[], Net], shapes: Callable[[random.Random, int], Iterator[Shape]]) -> Callable[[Tape], None]:
    return lambda tape: tape.in_turn([(net(), shapes(tape.dice, 400))], 1, 2)


def two_at_once(tape: Tape) -> None:
    tape.interleaved([(bert_large(), texts(tape.dice, 300)), (of_torchvision("resnet50"), images(tape.dice, 900))], 40)


def three_in_turn(tape: Tape) -> None:
    dice = tape.dice
    works = [(bert_large(), texts(dice, 120, 33)), (of_torchvision("resnet152"), images(dice, 120)),
             (vit_large(), images(dice, 120))]
    tape.in_turn(works, 2, 8)


TRACES: dict[str, Callable[[Tape], None]] = {
    "bert_large": one(bert_large, texts),
    "vit_large": one(vit_large, images),
    "resnet152": one(lambda: of_torchvision("resnet152"), images),
    "densenet201": one(lambda: of_torchvision("densenet201"), images),
    "mobilenet": one(lambda: of_torchvision("mobilenet_v3_large"), images),
    "two_at_once": two_at_once,
    "three_in_turn": three_in_turn,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Traces of whole nets for aclpool replay.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"some of {', '.join(TRACES)} (default: all)")
    parser.add_argument("--seed", type=int, default=11)
    arguments = parser.parse_args()
    if unknown := set(arguments.nets) - set(TRACES):
        parser.error(f"NET: expected some of {', '.join(TRACES)}, got {', '.join(sorted(unknown))}")
    # A torchvision built for another torch cannot register its meta functions for detectors; they are not needed here.
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("none")
    attention_as_one_operator()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.nets or TRACES:
        tape = Tape(arguments.seed)
        TRACES[name](tape)
        print(tape.save(arguments.folder / f"{name}.npz"), flush=True)


if __name__ == "__main__":
    main()
