"""acl.Op: operators of the library and of the user, their attributes, workspaces and errors."""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from support.binaries import compiled
from support.models import CountingAllocator

import acl

RNG = np.random.default_rng(4)
A, B = RNG.standard_normal((3, 4)).astype(np.float32), RNG.standard_normal((3, 4)).astype(np.float32)


def one(op: acl.Op, *inputs, **options) -> np.ndarray:
    """Run an operator with one output, and return it on the host."""
    (result,) = op(*inputs, **options)
    return result.numpy()


@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        (acl.Op("Add"), (A, B), A + B),
        (acl.Op("Sub"), (A, B[0]), A - B[0]),
        (acl.Op("Mul"), (A, B[:, :1]), A * B[:, :1]),
        (acl.Op("Relu"), (A,), np.maximum(A, 0)),
        (acl.Op("MatMul"), (A, B.T.copy()), A @ B.T),
        (acl.Op("MatMul", transpose_x2=True), (A, B), A @ B.T),
        (acl.Op("Cast", dst_type=3), (A * 10,), (A * 10).astype(np.int32)),
        (acl.Op("Identity"), (A,), A),
        (acl.Op("Add"), (np.float32(2), np.float32(3)), np.float32(5)),
        (acl.Op("Add"), (np.array([1, 2]), np.array([3, 4])), np.array([4, 6])),
        (acl.Op("Add"), (A.astype("f2"), B.astype("f2")), A.astype("f2") + B.astype("f2")),
    ],
    ids=lambda value: repr(value) if isinstance(value, acl.Op) else "",
)
def test_operator_infers_output_shapes_and_gives_right_results(stream, op, inputs, expected):
    got = one(op, *inputs, stream=stream)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


def test_operator_broadcasts_random_shapes_correctly(stream):
    seed = 9
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for _ in range(40):
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(1, 5)))
        other = tuple(1 if rng.random() < 0.4 else n for n in shape)[int(rng.integers(0, len(shape))):]
        x, y = rng.standard_normal(shape).astype("f4"), rng.standard_normal(other).astype("f4")
        np.testing.assert_allclose(one(acl.Op("Mul"), x, y, stream=stream), x * y, rtol=1e-6)


def test_operator_outputs_may_be_given_or_described(stream):
    with acl.Pool(0) as pool:
        pool.register(stream)
        target = pool.empty((3, 4), "float32", stream)
        (same,) = acl.Op("Add")(A, B, outputs=[target], stream=stream)
        assert same is target
        np.testing.assert_array_equal(target.numpy(), A + B)
        np.testing.assert_array_equal(
            one(acl.Op("Add"), A, B, outputs=[((3, 4), "float32")], stream=stream), A + B)
        target.close()
        same.close()


def test_result_of_an_operator_can_be_the_input_of_another(stream):
    total = acl.Op("Add")(A, B, stream=stream)[0]
    np.testing.assert_allclose(one(acl.Op("Relu"), total, stream=stream), np.maximum(A + B, 0))


def test_operator_runs_without_a_given_stream(stream):
    np.testing.assert_array_equal(one(acl.Op("Add"), A, B), A + B)


def test_operators_can_run_in_several_threads(stream):
    failures: list[BaseException] = []

    def serve(value: int) -> None:
        try:
            with acl.Stream(0) as mine:
                for n in range(1, 30):
                    x = np.full(n, value, np.float32)
                    np.testing.assert_array_equal(one(acl.Op("Add"), x, x, stream=mine), 2 * x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=serve, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not failures, failures[0]


def test_operator_workspace_is_allocated_by_the_registered_callbacks_in_order(stream):
    allocator = CountingAllocator(stream.handle)
    x = np.ones((64, 64), np.float32)
    np.testing.assert_array_equal(one(acl.Op("MatMul"), x, x, stream=stream), x @ x)
    assert [what for what, _ in allocator.events] == ["alloc", "free"]
    assert not allocator.live
    allocator.close()


@pytest.mark.parametrize(
    "attributes",
    [{"_a": True, "_b": 3, "_c": 0.5, "_d": "text"},
     {"_a": [True, False], "_b": [1, 2], "_c": [0.5], "_d": ["x", "yz"]},
     {"_a": [[1, 2], [3]], "_b": []}],
)
def test_operator_accepts_attributes_of_every_type(stream, attributes):
    """Attributes that begin with an underscore do not change the result, so every operator accepts them."""
    op = acl.Op("Add", **attributes)
    np.testing.assert_array_equal(one(op, A, B, stream=stream), A + B)
    assert op.attributes == attributes


@pytest.mark.parametrize("value", [None, {}, [1, "x"], [None], b"bytes"])
def test_operator_attribute_of_an_unsupported_type_is_refused_by_name(stream, value):
    with pytest.raises(TypeError, match="'strange'"):
        acl.Op("Add", strange=value)(A, B, stream=stream)


def test_refused_operator_call_names_the_operator(stream):
    with pytest.raises(acl.AclError, match="Nonsense"):
        acl.Op("Nonsense")(A, outputs=[((3, 4), "float32")], stream=stream)
    with pytest.raises(acl.AclError):
        acl.Op("Add")(A, np.ones((3, 5), np.float32), stream=stream)
    with pytest.raises(TypeError, match="kind must be a str, not int"):
        acl.Op(3)
    with pytest.raises(acl.InvalidArgumentError, match="input 1 of Add: no operator takes"):
        acl.Op("Add")(A, np.array(["x"]), stream=stream)
    (closed,) = acl.Op("Add")(A, B, stream=stream)
    closed.close()
    with pytest.raises(ValueError, match="closed"):
        acl.Op("Relu")(closed, stream=stream)


def test_runtime_failures_in_an_operator_are_raised_and_later_calls_work(sim, stream):
    for function in ("aclrtMalloc", "aclopCompileAndExecuteV2", "aclopInferShape"):
        with sim.fault(function, nth=1), pytest.raises((acl.AclError, MemoryError)):
            acl.Op("Add")(A, B, stream=stream)
        np.testing.assert_array_equal(one(acl.Op("Add"), A, B, stream=stream), A + B)


# ---- kernels of the user ------------------------------------------------------------------------

SOURCE = """
struct Own { const float *x; float *y; float *u, *v; uint32_t count; float factor; };
ACL_SIM_KERNEL(own)
{
    const struct Own *p = args;
    for (uint32_t i = 0; i < p->count; i++) { p->u[i] = p->x[i] * p->factor; p->v[i] = p->u[i] + 1; }
    memcpy(p->y, p->v, p->count * sizeof(float));
}
ACL_SIM_KERNEL(idle) {}
"""
pytest_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compiled(SOURCE, tmp_path_factory.mktemp("own"))


@pytest.fixture
def own() -> Iterator[None]:
    yield
    acl.Op.remove_compiler("OwnOp")


@pytest_gcc
def test_user_kernel_gets_its_workspaces_and_arguments(stream, binary, own):
    acl.Op.add_kernel("OwnOp", "first", "own", binary)
    seen = []

    @acl.Op.compiler("OwnOp")
    def choose(inputs, outputs, choice):
        seen.append((inputs[0].shape, inputs[0].dtype, outputs[0].shape))
        count = inputs[0].shape[0]
        choice.use("first", 1, struct.pack("If", count, 3.0), [4 * count, 4 * count])

    for count in (1, 50, 1000):
        x = RNG.standard_normal(count).astype(np.float32)
        got = one(acl.Op("OwnOp"), x, outputs=[(count, "float32")], stream=stream)
        np.testing.assert_allclose(got, 3 * x + 1, rtol=1e-6)
    assert seen == [((n,), "float32", (n,)) for n in (1, 50, 1000)]


@pytest_gcc
def test_user_kernels_of_one_operator_may_use_16_workspaces_together(stream, binary, own):
    acl.Op.add_kernel("OwnOp", "idle", "idle", binary)
    sizes = []

    @acl.Op.compiler("OwnOp")
    def choose(inputs, outputs, choice):
        for part in sizes:
            choice.use("idle", 1, b"", [32] * part)

    for sizes[:], right in (([10, 6], True), ([10, 7], False), ([16], True), ([17], False)):
        if right:
            acl.Op("OwnOp")(A, outputs=[(A.shape, "float32")], stream=stream)
        else:
            with pytest.raises(acl.AclError, match="aclopExecuteV2"):
                acl.Op("OwnOp")(A, outputs=[(A.shape, "float32")], stream=stream)


@pytest_gcc
def test_error_in_a_compile_function_is_raised_by_the_operator_call(stream, own):
    kept = []

    @acl.Op.compiler("OwnOp")
    def choose(inputs, outputs, choice):
        kept.append(choice)
        raise RuntimeError("no kernel for these")

    with pytest.raises(RuntimeError, match="no kernel for these"):
        acl.Op("OwnOp")(A, outputs=[(A.shape, "float32")], stream=stream)
    with pytest.raises(ValueError, match="only while the compile function runs"):
        kept[0].use("first", 1)


@pytest_gcc
def test_kernel_registered_twice_is_refused(binary):
    acl.Op.add_kernel("OwnTwice", "id", "idle", binary)
    with pytest.raises(acl.AclError, match="aclopCreateKernel"):
        acl.Op.add_kernel("OwnTwice", "id", "idle", binary)
    with pytest.raises(acl.AclError, match="aclopCreateKernel"):
        acl.Op.add_kernel("OwnTwice", "other", "nothing", binary)
