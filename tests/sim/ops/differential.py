"""The built-in engine against ONNX Runtime and onnx's reference implementation, on random models of one
operator each.

    python tests/sim/ops/differential.py [--seed N] [--cases N | --seconds N | --full] [--only Operator]
    python tests/sim/ops/differential.py --case SEED INDEX [--only Operator]     one case, in words

It needs the packages onnx and onnxruntime.  Without --seconds and --full it runs a fixed number of cases, which take
about two minutes; a seed gives equal cases on every machine.  A result is right if it equals ONNX Runtime's, or, if
ONNX Runtime refuses the model or contradicts the standard, the reference's.  KNOWN lists results that differ from both,
with reasons.

The exit status is 1 if another result differs; if the simulator refuses an operator that one of the two runs, without
an entry in REFUSED; or if the simulator crashes or takes a minute.  The two numbers of each such case are printed.  One
case in seven has a wrong attribute, input, type or shape; such a case must not crash.

A child process runs the cases and prints the number of each before it begins.  So the parent finds a case that
crashes, and continues with the next case.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.update(ACL_BACKEND="sim", ACL_SIM_ENGINE="builtin", ACL_SIM_MEMORY="1G")

import numpy as np
from sim.ops.operator_cases import RECIPES, Array, Case, make_case

__all__ = ["KNOWN", "REFUSED", "main"]

CASE_SECONDS = 60
CASES = 100_000

Test = Callable[[Case], bool]
Results = list[Array] | None


def types_of(case: Case) -> set[str]:
    return {x.dtype.name for x in case.inputs if x is not None}


def odd(case: Case) -> bool:
    """Return True if the inputs contain NaN or infinities."""
    return any(x is not None and x.dtype.kind == "f" and not np.isfinite(x).all() for x in case.inputs)


def wide(case: Case) -> bool:
    return "float64" in types_of(case)


def extreme(case: Case) -> bool:
    """Return True if a product of a few numbers of the inputs may be outside the range of float32."""
    sizes = [np.abs(x[np.isfinite(x) & (x != 0)].astype(np.float64)) for x in case.inputs if x is not None]
    return any(x.size and (x.max() > 1e4 or x.min() < 1e-4) for x in sizes) or odd(case)


def many(case: Case) -> bool:
    return case.inputs[0] is not None and case.inputs[0].size > 100


def integers(case: Case) -> bool:
    return case.inputs[0] is not None and case.inputs[0].dtype.kind in "iu"


def crowded(case: Case) -> bool:
    """Return True if the numbers of a normalised group differ little in comparison with their size."""
    x = case.inputs[0]
    if x is None or x.dtype.kind != "f" or x.size == 0:
        return False
    groups = x.reshape(x.shape[0] * case.attributes["num_groups"], -1).astype(np.float64)
    return bool((np.abs(groups).max(1) > 300 * groups.std(1)).any())


def strides_skip(case: Case) -> bool:
    """Return True if the strides are so wide that the padding of SAME is negative."""
    if not str(case.attributes.get("auto_pad", "")).startswith("SAME"):
        return False
    kernel = case.attributes["kernel_shape"]
    strides = case.attributes.get("strides", [1] * len(kernel))
    dilations = case.attributes.get("dilations", [1] * len(kernel))
    sizes = case.inputs[0].shape[2:]  # type: ignore[union-attr]
    return any(
        (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 < size
        for size, stride, taps, dilation in zip(sizes, strides, kernel, dilations, strict=True)
    )


def valid_dilated(case: Case) -> bool:
    return case.attributes.get("auto_pad") == "VALID" and max(case.attributes.get("dilations", [1])) > 1


def nothing(case: Case) -> bool:
    return any(x is not None and x.size == 0 for x in case.inputs)


#: Results that differ from ONNX Runtime and from the reference, and why they are right or accepted.
KNOWN: list[tuple[str, Test, str]] = [
    ("Erf", wide, "the reference computes it in float32, and ONNX Runtime has no float64"),
    ("Gelu", wide, "as Erf; and both write its constants as float32"),
    ("HardSwish", wide, "the reference has 1/6 as a float32 attribute; the standard says 1/6"),
    (
        "GlobalMaxPool",
        wide,
        "the reference reduces the wrong axes of three dimensions, and ONNX Runtime has no float64",
    ),
    (
        "AveragePool",
        lambda c: wide(c) and odd(c),
        "the reference takes NaN for padding, and ONNX Runtime has no float64",
    ),
    ("Attention", lambda c: wide(c) and "scale" in c.attributes, "the others take the root of the scale in float32"),
    (
        "AveragePool",
        lambda c: wide(c) and c.attributes.get("ceil_mode") == 1,
        "the reference shifts its windows, and ONNX Runtime has no float64; float32 agrees with ONNX Runtime",
    ),
    (
        "AveragePool",
        lambda c: wide(c) and c.attributes.get("auto_pad") == "VALID" and "dilations" in c.attributes,
        "the reference forgets the dilations, and ONNX Runtime has no float64; float32 agrees with ONNX Runtime",
    ),
    (
        "LRN",
        lambda c: c.inputs[0] is not None and c.inputs[0].shape[1] > 100,
        "ONNX Runtime adds and subtracts in float32 from channel to channel, and drifts; the reference is far off",
    ),
    ("GroupNormalization", wide, "the others compute the numbers of a group in float32, as stash_type 1 allows"),
    ("GroupNormalization", crowded, "the others find the variance as a difference of squares, and lose it in float32"),
    ("AveragePool", strides_skip, "as MaxPool"),
    ("LpPool", strides_skip, "as MaxPool"),
    (
        "AveragePool",
        lambda c: wide(c) and valid_dilated(c),
        "under VALID the reference counts its windows without their dilation, and ONNX Runtime has no float64",
    ),
    *[
        (
            f"Reduce{kind}",
            lambda c: integers(c) and nothing(c),
            "of no integers along an axis ONNX Runtime gives another shape, and the reference int64",
        )
        for kind in ("Sum", "SumSquare", "Prod", "L1", "L2", "LogSum", "LogSumExp", "Max", "Min")
    ],
    (
        "LogSoftmax",
        lambda c: c.opset < 13 and odd(c),
        "the reference runs along the axis; of a line with an infinity, all NaN here, ONNX Runtime finds a part",
    ),
    ("Softmax", lambda c: c.opset < 13 and odd(c), "as LogSoftmax"),
    ("Resize", wide, "with scales the reference counts by a length that is not whole, and ONNX Runtime has no float64"),
    ("ReduceL2", extreme, "squares leave float32; they are summed in float64 here"),
    ("ReduceSumSquare", extreme, "as ReduceL2"),
    ("ReduceSum", extreme, "sums of 1e30 and -1e30 depend on their order"),
    ("ReduceMean", extreme, "as ReduceSum"),
    ("CumSum", extreme, "as ReduceSum"),
    ("ReduceProd", lambda c: extreme(c) or many(c), "as ReduceL2: products of many leave float32 on the way"),
    (
        "MaxPool",
        strides_skip,
        "strides wider than the kernel: SAME pads nothing; ONNX Runtime refuses or crops, as the reference does",
    ),
    (
        "ConvTranspose",
        lambda c: str(c.attributes.get("auto_pad", "")).startswith("SAME"),
        "the output is the input times the strides; ONNX Runtime's is smaller where strides pass the kernel",
    ),
    ("ReduceLogSumExp", integers, "ONNX Runtime truncates each exponential; the reference refuses or wraps"),
    ("ReduceMean", lambda c: integers(c) and nothing(c), "nothing has no mean: 0 here; both others have no sense"),
    ("HannWindow", lambda c: not c.attributes.get("periodic", 1), "a symmetric window of one is 0 / 0 in the others"),
    ("BlackmanWindow", lambda c: not c.attributes.get("periodic", 1), "as HannWindow"),
    ("HammingWindow", lambda c: not c.attributes.get("periodic", 1), "as HannWindow"),
    ("FusedMatMul", nothing, "sums of nothing are 0; ONNX Runtime leaves such a result as its memory was"),
    ("LpPool", extreme, "powers leave float32; they are summed in float64 here"),
    (
        "GridSample",
        lambda c: c.attributes.get("mode") == "cubic" and c.attributes.get("padding_mode") == "border",
        "each pixel is brought inside, as in torch, where the operator comes from; the others bring the place inside",
    ),
    (
        "GridSample",
        lambda c: c.attributes.get("mode") == "nearest",
        "float32 rounds a place across an edge in the others",
    ),
]

#: Models that the built-in engine refuses although ONNX Runtime or the reference runs them, and why.
REFUSED: list[tuple[str, Test, str]] = [
    (
        "Softmax",
        lambda c: c.opset < 13,
        "its default axis, 1, is outside a tensor of one dimension; ONNX Runtime refuses too",
    ),
    ("LogSoftmax", lambda c: c.opset < 13, "as Softmax"),
    *[
        (kind, lambda c: "dilations" in c.attributes, "a dilated kernel wider than its input; the others disagree")
        for kind in ("AveragePool", "MaxPool")
    ],
    ("ArgMax", nothing, "there is no largest of nothing"),
    ("ArgMin", nothing, "as ArgMax"),
]


def listed(rules: list[tuple[str, Test, str]], case: Case) -> bool:
    return any(kind in ("*", case.kind) and test(case) for kind, test, _ in rules)


# --- three ways to run a case ----------------------------------------------------------------------


def model_of(case: Case) -> Any:
    import onnx
    from onnx import helper, numpy_helper

    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    while names and not names[-1]:
        names.pop()
    attributes = {
        key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for key, value in case.attributes.items()
    }
    node = helper.make_node(case.kind, names, [f"y{i}" for i in range(case.outputs)], domain=case.domain, **attributes)
    given, constants = [], []
    for i, x in enumerate(case.inputs):
        if x is None:
            continue
        if i in case.constants:
            constants.append(numpy_helper.from_array(x, f"x{i}"))
        else:
            given.append(
                helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim)
            )
    outputs = [onnx.ValueInfoProto(name=f"y{i}") for i in range(case.outputs)]
    graph = helper.make_graph([node], "one", given, outputs, constants)
    sets = [helper.make_opsetid("", case.opset)] + ([helper.make_opsetid(case.domain, 1)] if case.domain else [])
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def feeds(case: Case) -> dict[str, Array]:
    return {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None and i not in case.constants}


def of_simulator(case: Case, data: bytes) -> tuple[Results, str]:
    from support.models import SimModel

    try:
        with SimModel(data) as model:
            return model(*feeds(case).values()), ""
    except AssertionError as error:
        return None, str(error).split("; called with")[0]


def of_runtime(case: Case, data: bytes) -> tuple[Results, str]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return [np.asarray(y) for y in session.run(None, feeds(case))], ""
    except Exception as error:
        return None, str(error)


def of_reference(case: Case, model: Any) -> tuple[Results, str]:
    from onnx.reference import ReferenceEvaluator

    try:
        return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, feeds(case))], ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


# --- comparing -------------------------------------------------------------------------------------

TOLERANCE = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-9}


def close(got: Array, wanted: Array, case: Case) -> bool:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return False
    return bool(
        right(got, wanted, case).mean() >= (1.0 if case.orders or got.dtype.kind != "f" else 0.9) if got.size else True
    )


def right(got: Array, wanted: Array, case: Case) -> Array:
    """Return for each element whether two results of one shape and type agree."""
    if got.dtype.kind != "f":
        # An integer may differ by 1, because the rounding of a float decides about it.
        return np.asarray(
            (got == wanted) if case.orders else np.abs(got.astype(np.int64) - wanted.astype(np.int64)) <= 1
        )
    x, y = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(y)
    allowed = max(TOLERANCE[name] for name in types_of(case) & set(TOLERANCE) | {got.dtype.name})
    scale = float(np.abs(y[finite]).max()) if case.tolerance > 1 and finite.any() else 0.0
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= allowed * case.tolerance * (np.abs(y) + scale) + 0.05 * allowed
    return np.asarray(np.where(finite, near, (x == y) | (np.isnan(x) & np.isnan(y))))


def either(got: Results, one: Results, other: Results, case: Case) -> bool:
    """Return True if each element agrees with one of two results; both may be wrong for some NaN and infinities."""
    if got is None or one is None or other is None:
        return False
    return all(
        x.shape == a.shape == b.shape
        and x.dtype == a.dtype == b.dtype
        and (right(x, a, case) | right(x, b, case)).all()
        for x, a, b in zip(got, one, other, strict=True)
    )


def all_close(got: Results, wanted: Results, case: Case) -> bool:
    return (
        got is not None
        and wanted is not None
        and len(got) == len(wanted)
        and all(close(a, b, case) for a, b in zip(got, wanted, strict=True))
    )


def verdict(case: Case) -> tuple[str, str]:
    """Run a case; return its outcome, and the details."""
    try:
        model = model_of(case)
    except (ValueError, TypeError):
        return "wild", "no model can say that"
    data = model.SerializeToString()
    got, refusal = of_simulator(case, data)
    if case.wild:
        return "wild", shown(got, refusal)
    runtime, runtime_says = of_runtime(case, data)
    if all_close(got, runtime, case):
        return "runtime", ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reference, reference_says = of_reference(case, model)
    if all_close(got, reference, case) or (odd(case) and either(got, runtime, reference, case)):
        return "reference", ""
    details = (
        f"    simulator: {shown(got, refusal)}\n    runtime:   {shown(runtime, runtime_says)}\n"
        f"    reference: {shown(reference, reference_says)}"
    )
    if runtime is None and (reference is None or case.domain):
        return ("nobody" if got is None else "alone"), details
    if got is None:
        return ("refused" if listed(REFUSED, case) else "REFUSED"), details
    return ("known" if listed(KNOWN, case) else "DIFFERS"), details


def shown(results: Results, why: str) -> str:
    if results is None:
        return "refused: " + " ".join(why.split())[:200]
    return "; ".join(f"{y.dtype}{list(y.shape)} {y.ravel()[:8].tolist()}" for y in results)


# --- the two processes -----------------------------------------------------------------------------


def work(seed: int, first: int, end: int, until: float, only: str) -> None:
    """Run the cases from `first` to `end` - 1, until the time is over; print a line before and after each."""
    from support.calls import api

    assert api.aclInit(None) in (0, 100002)
    assert api.aclrtSetDevice(0) == 0
    index = first
    while index < end and time.time() < until:
        print("begin", index, flush=True)
        signal.alarm(CASE_SECONDS)
        case = make_case(seed, index, only)
        word, details = verdict(case)
        print("end", word, case.kind, flush=True)
        if word.isupper():
            print(
                f"{word} --case {seed} {index}{' --only ' + only if only else ''}: {case}\n{details}",
                file=sys.stderr,
                flush=True,
            )
        index += 1


def watch(seed: int, cases: int, seconds: float, only: str) -> int:
    """Run one worker after another until all cases are done or the time is over; return the number of wrong cases."""
    until, first, bad = time.time() + seconds, 0, 0
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    while first < cases and time.time() < until:
        limits = [str(seed), str(first), str(cases), str(until)]
        command = [sys.executable, str(Path(__file__).resolve()), "--work", *limits]
        with subprocess.Popen(
            [*command, *(["--only", only] if only else [])], stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            for line in worker.stdout:
                words = line.split()
                if words[:1] == ["begin"]:
                    first = int(words[1])
                elif words[:1] == ["end"]:
                    first += 1
                    counts[words[1]] += 1
                    kinds[words[2]] += words[1] in ("runtime", "reference")
                    bad += words[1].isupper()
        if worker.returncode != 0:
            print(f"DIED with {worker.returncode} --case {seed} {first}: {make_case(seed, first, only)}", flush=True)
            bad += 1
            first += 1
    print(f"{sum(counts.values())} cases of seed {seed}:", ", ".join(f"{n} {w}" for w, n in sorted(counts.items())))
    missing = (
        sorted(set(RECIPES) - {k for k, n in kinds.items() if n}) if not only and sum(counts.values()) > 5000 else []
    )
    if missing:
        print("never compared:", ", ".join(missing))
    return bad + len(missing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--cases", type=int, default=CASES, metavar="N", help="number of cases (default: %(default)s)")
    parser.add_argument("--seconds", type=float, metavar="N", help="run new cases for N seconds instead")
    parser.add_argument("--full", action="store_true", help="for an hour")
    parser.add_argument("--only", default="", choices=["", *sorted(RECIPES)], metavar="OPERATOR")
    parser.add_argument("--case", type=int, nargs=2, metavar=("SEED", "INDEX"))
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        seed, first, end = map(int, asked.work[:3])
        work(seed, first, end, float(asked.work[3]), asked.only)
        return 0
    if asked.case:
        from support.calls import api

        assert api.aclInit(None) in (0, 100002) and api.aclrtSetDevice(0) == 0
        case = make_case(*asked.case, asked.only)
        print(case)
        for x in case.inputs:
            print("   ", None if x is None else f"{x.dtype}{list(x.shape)} {x.ravel()[:24].tolist()}")
        print(*verdict(case), sep="\n")
        return 0
    print(f"seed {asked.seed}", flush=True)
    seconds = 3600.0 if asked.full else asked.seconds
    cases = asked.cases if seconds is None else sys.maxsize
    return 1 if watch(asked.seed, cases, seconds or float("inf"), asked.only) else 0


if __name__ == "__main__":
    sys.exit(main())
