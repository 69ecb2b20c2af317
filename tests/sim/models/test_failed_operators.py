"""Which operator of a model failed: a query with the numbers that an exception callback receives."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.models import SimModel

from acl.tools.onnx_writer import Builder

P, FAILURE = 100000, 500001
ROOM = 256
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

pytestmark = pytest.mark.usefixtures("device")


def picking_model() -> bytes:
    """Return a model that selects rows of x by index; an index out of range fails when the kernel runs."""
    made = Builder()
    x, rows = made.input("x", "float32", [4, 3]), made.input("rows", "int64", [2])
    made.output(made.add("Gather", x, rows, axis=0), "float32", [2, 3])
    return made.to_bytes()


class Answer:
    """The results of aclmdlCreateAndGetOpDesc."""

    def __init__(self) -> None:
        self.name = ctypes.create_string_buffer(ROOM)
        self.inputs, self.input_count = out(), out(ctypes.c_size_t)
        self.outputs, self.output_count = out(), out(ctypes.c_size_t)

    def ask(self, numbers: tuple[int, int, int], room: int = ROOM) -> int:
        code: int = api.aclmdlCreateAndGetOpDesc(
            *numbers, ctypes.addressof(self.name), room, ctypes.byref(self.inputs), ctypes.byref(self.input_count),
            ctypes.byref(self.outputs), ctypes.byref(self.output_count))
        return code


def shape(desc: int) -> tuple[int, ...]:
    return tuple(api.aclGetTensorDescDim(desc, i) for i in range(api.aclGetTensorDescNumDims(desc)))


@pytest.fixture
def failed(raw_stream: int) -> Iterator[tuple[tuple[int, int, int], list[int]]]:
    """Yield device, stream and task of a failed operator, and the addresses of its inputs."""
    told: list[tuple[int, int, int]] = []

    def on_exception(info: int) -> None:
        told.append((api.aclrtGetDeviceIdFromExceptionInfo(info), api.aclrtGetStreamIdFromExceptionInfo(info),
                     api.aclrtGetTaskIdFromExceptionInfo(info)))

    keep = CALLBACK(on_exception)
    assert api.aclrtSetExceptionInfoCallback(ctypes.cast(keep, ctypes.c_void_p)) == 0
    with SimModel(picking_model()) as model:
        call = model.queue(raw_stream, [np.zeros((4, 3), np.float32), np.array([1, 99], np.int64)], [24])
        assert api.aclrtSynchronizeStream(raw_stream) != 0
        assert api.aclrtSetExceptionInfoCallback(None) == 0
        assert len(told) == 1
        yield told[0], call.memory[:2]
        call.close()


def test_failed_op_desc_has_the_operator_and_its_tensors(failed: tuple[tuple[int, int, int], list[int]]) -> None:
    numbers, memory = failed
    answer = Answer()
    assert answer.ask(numbers) == 0
    assert "Gather" in answer.name.value.decode()
    assert (answer.input_count.value, answer.output_count.value) == (2, 1)
    descs = [api.aclGetTensorDescByIndex(answer.inputs, i) for i in range(2)]
    assert descs[0] == answer.inputs.value
    assert [shape(desc) for desc in descs] == [(4, 3), (2,)]
    assert [api.aclGetTensorDescType(desc) for desc in descs] == [0, 9]
    assert [api.aclGetTensorDescAddress(desc) for desc in descs] == memory
    assert api.aclGetTensorDescByIndex(answer.inputs, 2) is None
    assert shape(answer.outputs.value) == (2, 3)
    for first in (answer.inputs, answer.outputs):
        api.aclDestroyTensorDesc(first)
    assert api.aclGetTensorDescByIndex(descs[1], 0) is None, "a row goes with its first"


def test_failed_op_desc_is_repeatable_and_matches_only_its_task(failed: tuple[tuple[int, int, int], list[int]]) -> None:
    (device, stream, task), _ = failed
    answer = Answer()
    for numbers in ((device + 1, stream, task), (device, stream + 1, task), (device, stream, task + 1)):
        assert answer.ask(numbers) == FAILURE
    for _ in range(2):
        assert answer.ask((device, stream, task)) == 0
        for first in (answer.inputs, answer.outputs):
            api.aclDestroyTensorDesc(first)


def test_failed_op_desc_needs_room_for_the_operator_name(failed: tuple[tuple[int, int, int], list[int]]) -> None:
    numbers, _ = failed
    answer = Answer()
    assert answer.ask(numbers) == 0
    length = len(answer.name.value)
    for first in (answer.inputs, answer.outputs):
        api.aclDestroyTensorDesc(first)
    assert answer.ask(numbers, length) == P
    assert answer.ask(numbers, 0) == P


@pytest.mark.parametrize("missing", range(3, 9))
def test_failed_op_desc_without_an_output_pointer_is_refused(missing: int) -> None:
    answer = Answer()
    arguments: list[Any] = [
        0, 0, 0, ctypes.addressof(answer.name), ROOM, ctypes.byref(answer.inputs), ctypes.byref(answer.input_count),
        ctypes.byref(answer.outputs), ctypes.byref(answer.output_count)]
    if missing != 4:
        arguments[missing] = None
        assert api.aclmdlCreateAndGetOpDesc(*arguments) == P
    else:
        assert api.aclmdlCreateAndGetOpDesc(*arguments) == FAILURE
