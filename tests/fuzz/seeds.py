"""Makes the seeds of the fuzzers, for each run: models of one operator each, models with subgraphs
and functions, binaries, texts, and a dictionary of the words in the simulator's sources.

    python tests/fuzz/seeds.py FOLDER
"""

from __future__ import annotations

import io
import re
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from sim.ops.operator_cases import RECIPES, make_case
from sim.ops.operator_dice import Case
from support import control_models, models
from support.binaries import device_binary

from acl.tools.onnx_writer import Builder

__all__ = ["dictionary", "write"]

SOURCES = Path(__file__).resolve().parents[2] / "acl/sim"
SEED, MODELS_MAX_BYTES = 14, 6000

TEXTS = [
    '{"a": {"b": "c"}, "d": [1, -2.5e3, true, false, null, "\\u00e9\\n"]}',
    '{"defaultDevice": {"default_device": "0"}, "err_msg_mode": "1"}',
    "aclrtMalloc:nth=3:times=2:code=207001",
    "aclrtMallocAlign32:p=0.5:seed=7:every=2",
]


def model_of(case: Case, constant: bool) -> bytes:
    """Return the case as an ONNX file; if `constant`, its inputs are constants of the file."""
    b = Builder(case.opset)
    names = []
    for i, x in enumerate(case.inputs):
        if x is None:
            names.append("")
        elif constant or i in case.constants:
            names.append(b.constant(x))
        else:
            names.append(b.input(f"x{i}", x.dtype.name, list(x.shape)))
    outputs = [f"y{i}" for i in range(case.outputs)]
    b.add(case.kind, *names, outputs=outputs, domain=case.domain, **case.attributes)
    for name in outputs:
        b.output(name)
    return b.to_bytes()


def one_operator_each() -> list[bytes]:
    made = []
    for index, kind in enumerate(sorted(RECIPES)):
        for turn in range(4):
            try:
                data = model_of(make_case(SEED, 4 * index + turn, kind), turn % 2 == 1)
            except (TypeError, ValueError, KeyError):  # a type that the writer does not support
                continue
            if len(data) <= MODELS_MAX_BYTES:
                made.append(data)
    return made


def with_subgraphs() -> list[bytes]:
    half, b = Builder(21), Builder(21)
    half.add("Neg", half.input("x", "float32", None), outputs=["y"])
    half.output("y")
    b.add("Half", b.input("x", "float32", ["n", 4]), domain="local", outputs=["y"])
    b.output("y")
    control = [control_models.branching(), control_models.power_loop(), control_models.appending()]
    return [*(c.to_bytes() for c in control), b.to_bytes({"made": "here"}, {"Half": half}),
            models.transformer_encoder(width=4, heads=1, layers=1).to_bytes()]


def bundle(members: list[bytes]) -> bytes:
    """Return a tar archive of the members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, data in enumerate(members):
            about = tarfile.TarInfo(f"{number}.onnx")
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return buffer.getvalue()[:-8 * 1024]


def operator(case: Case) -> bytes:
    """Return the case in the form that fuzz_operator.c reads."""
    types = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8,
             "int64": 9, "uint64": 10, "float64": 11, "bool": 12}
    shapes = [x for x in case.inputs if x is not None][:5]
    made = case.kind.encode() + b"\n\1" + bytes([len(shapes)])
    for x in shapes:
        made += bytes([types.get(x.dtype.name, 0), x.ndim & 7, 0xC0, *[min(d, 119) for d in x.shape[:7]], 1])
    made += bytes([case.outputs])
    first = shapes[0] if shapes else np.zeros(1, np.float32)
    for _ in range(case.outputs):
        sizes = [min(d, 119) for d in first.shape[:7]]
        made += bytes([types.get(first.dtype.name, 0), first.ndim & 7, 0xC0, *sizes, 1])
    numbers = [(k, v) for k, v in case.attributes.items() if isinstance(v, int)][:6]
    made += bytes([len(numbers)])
    for name, value in numbers:
        made += b"\0\0" + name.encode() + b"\n" + bytes([max(-128, min(int(value), 119)) & 255])
    return made


def dictionary() -> str:
    """Return the short words in the simulator's sources, in the form that libFuzzer reads."""
    words: set[str] = set()
    for source in sorted(SOURCES.glob("*/*.c")):
        words.update(re.findall(r'"([A-Za-z_][A-Za-z0-9_]{1,31})"', source.read_text()))
    return "".join(f'"{word}"\n' for word in sorted(words))


def write(folder: Path) -> None:
    """Make `folder/HARNESS/NAME` and `folder/words.dict`."""
    cases = [make_case(SEED, index, kind) for index, kind in enumerate(sorted(RECIPES))]
    small = sorted(one_operator_each(), key=len)[:3]
    seeds = {
        "bundle": [bundle(small[:1]), bundle(small)],
        "model": one_operator_each() + with_subgraphs(),
        "operator": [operator(case) for case in cases],
        "binary": [
            device_binary(["add"]),
            device_binary(["a", "longer_name"], variables=[("v", 64, 8), ("w", 0, 4)], tables=3),
        ],
        "text": [text.encode() for text in TEXTS],
    }
    for name, files in seeds.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(files):
            (folder / name / f"seed{number:03}").write_bytes(data)
    (folder / "words.dict").write_text(dictionary())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
