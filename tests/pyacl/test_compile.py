"""Compile functions of operators in Python: `acl.op.register_compile_func` and its related functions."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import acl


@pytest.fixture
def descs() -> Iterator[list[int]]:
    """Yield three tensor descriptions."""
    assert acl.rt.set_device(0) == 0
    made = [acl.create_tensor_desc(0, [n], 2) for n in (2, 3, 4)]
    yield made
    for desc in made:
        acl.destroy_tensor_desc(desc)


def test_update_params_calls_the_function_of_its_operator(descs: list[int]) -> None:
    calls: list[Any] = []

    def chosen(name: str, status: int) -> Any:
        return lambda *given: calls.append((name, given[:4])) or status

    attr = acl.op.create_attr()
    assert acl.op.register_compile_func("PyFirst", chosen("first", 0)) == 0
    assert acl.op.register_compile_func("PySecond", chosen("second", 4321)) == 0
    assert acl.op.register_compile_func("PyFirst", print) == 100030
    acl.op.update_params("PyFirst", descs[:2], descs[2:], attr)
    assert acl.op.update_params("PySecond", descs[:1], descs[1:], attr) == 4321
    assert calls == [("first", (2, descs[:2], 1, descs[2:])), ("second", (1, descs[:1], 2, descs[1:]))]
    assert acl.op.unregister_compile_func("PyFirst") == 0
    assert acl.op.unregister_compile_func("PySecond") == 0
    assert acl.op.update_params("PyFirst", descs[:2], descs[2:], attr) == 100028
    acl.op.destroy_attr(attr)


def test_exception_in_a_compile_function_becomes_an_error_status(
    descs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    caught: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: caught.append(hook.exc_type))
    attr = acl.op.create_attr()
    assert acl.op.register_compile_func("PyRaises", lambda *given: 1 // 0) == 0
    assert acl.op.update_params("PyRaises", descs[:1], descs[1:2], attr) == 500000
    assert caught == [ZeroDivisionError]
    assert acl.op.unregister_compile_func("PyRaises") == 0
    acl.op.destroy_attr(attr)


def test_at_most_64_compile_functions_can_be_registered(descs: list[int]) -> None:
    names = [f"PyOp{i}" for i in range(65)]
    found = [acl.op.register_compile_func(name, print) for name in names]
    assert found[:64] == [0] * 64 and found[64] != 0
    assert [acl.op.unregister_compile_func(name) for name in names[:64]] == [0] * 64
    assert acl.op.register_compile_func(names[64], print) == 0
    assert acl.op.unregister_compile_func(names[64]) == 0


def test_compile_functions_must_be_callable() -> None:
    with pytest.raises(TypeError, match="argument 2 is not callable"):
        acl.op.register_compile_func("PyOp", 7)


@pytest.mark.parametrize("deallocator", [None, "x", 1.0])
def test_a_deallocator_is_a_callable_or_an_address(deallocator: Any) -> None:
    with pytest.raises(TypeError, match=r"acl\.op\.create_kernel args parse failed"):
        acl.op.create_kernel("PyOp", "id", "name", 0, 0, 0, deallocator)
