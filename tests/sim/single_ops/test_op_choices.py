"""Kernels chosen for calls: found again by shape, and discarded as aclopSetMaxOpQueueNum limits them."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from support.calls import api

from acl import include_dir

NOT_FOUND, P = 100024, 100000
UNLIMITED = (1 << 64) - 1
SOURCE = """
#include "acl_sim_kernel.h"
ACL_SIM_KERNEL(nothing) {}
"""
COMPILE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p, ctypes.c_void_p)

pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own.c").write_text(SOURCE)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", f"-I{include_dir()}",
         "-o", folder / "own.so", folder / "own.c"], check=True)
    return (folder / "own.so").read_bytes()


class Chooser:
    """A user-defined operator whose compile function counts its calls."""

    def __init__(self, name: str, binary: bytes, stream: int) -> None:
        self.name, self.stream, self.chosen = name.encode(), stream, 0
        self.keep = [COMPILE(self._choose), ctypes.create_string_buffer(binary)]
        assert api.aclopRegisterCompileFunc(self.name, ctypes.cast(self.keep[0], ctypes.c_void_p)) == 0
        created = api.aclopCreateKernel(self.name, b"id", b"nothing", self.keep[1], len(binary), 1, None)
        assert created in (0, 100031)
        self.memory = ctypes.create_string_buffer(64)
        self.buffer = api.aclCreateDataBuffer(ctypes.addressof(self.memory), 64)

    def _choose(self, inputs: int, ins: Any, outputs: int, outs: Any, attr: int, desc: int) -> int:
        self.chosen += 1
        code: int = api.aclopSetKernelArgs(desc, b"id", 1, struct.pack("Q", 0), 8)
        return code

    def _ends(self, dims: tuple[int, ...]) -> tuple[int, Any, Any]:
        desc = api.aclCreateTensorDesc(0, len(dims), (ctypes.c_int64 * len(dims))(*dims), 2)
        return desc, (ctypes.c_void_p * 1)(desc), (ctypes.c_void_p * 1)(self.buffer)

    def update(self, *dims: int, attr: int | None = None) -> int:
        desc, descs, _ = self._ends(dims)
        code: int = api.aclopUpdateParams(self.name, 1, descs, 0, None, attr)
        api.aclDestroyTensorDesc(desc)
        return code

    def execute(self, *dims: int, attr: int | None = None) -> int:
        desc, descs, buffers = self._ends(dims)
        code: int = api.aclopExecuteV2(self.name, 1, descs, buffers, 0, None, None, attr, self.stream)
        api.aclDestroyTensorDesc(desc)
        return code

    def close(self) -> None:
        assert api.aclopSetMaxOpQueueNum(UNLIMITED) == 0
        assert api.aclrtSynchronizeStream(self.stream) == 0
        assert api.aclDestroyDataBuffer(self.buffer) == 0
        assert api.aclopUnregisterCompileFunc(self.name) == 0


@pytest.fixture
def chooser(binary: bytes, raw_stream: int, request: pytest.FixtureRequest) -> Iterator[Chooser]:
    made = Chooser(request.node.name, binary, raw_stream)
    yield made
    made.close()


def test_kernel_choices_are_all_kept_without_a_limit(chooser: Chooser) -> None:
    for size in range(1, 3000):
        assert chooser.update(size, 2) == 0
    for size in range(1, 3000, 7):
        assert chooser.execute(size, 2) == 0
    assert chooser.execute(3000, 2) == NOT_FOUND
    assert chooser.execute(2) == NOT_FOUND


def test_second_choice_for_equal_shapes_replaces_the_first(chooser: Chooser) -> None:
    assert api.aclopSetMaxOpQueueNum(2) == 0
    assert chooser.update(1) == 0
    for _ in range(5):
        assert chooser.update(2) == 0
    assert chooser.chosen == 6
    assert chooser.execute(1) == 0
    assert chooser.execute(2) == 0


def test_least_recently_used_kernel_choice_is_removed(chooser: Chooser) -> None:
    assert api.aclopSetMaxOpQueueNum(3) == 0
    for size in (1, 2, 3):
        assert chooser.update(size) == 0
    assert chooser.execute(1) == 0  # now 2 is the least recently used
    assert chooser.update(4) == 0
    assert [chooser.execute(size) for size in (1, 2, 3, 4)] == [0, NOT_FOUND, 0, 0]
    assert chooser.update(2) == 0
    assert [chooser.execute(size) for size in (1, 2, 3, 4)] == [NOT_FOUND, 0, 0, 0]


def test_lower_limit_of_kernel_choices_applies_from_the_next_choice_on(chooser: Chooser) -> None:
    for size in range(1, 11):
        assert chooser.update(size) == 0
    assert api.aclopSetMaxOpQueueNum(2) == 0
    assert chooser.execute(1) == 0
    assert chooser.update(11) == 0
    assert [size for size in range(1, 12) if chooser.execute(size) == 0] == [1, 11]


def test_attributes_of_kernel_choices_are_compared_by_name(chooser: Chooser) -> None:
    """The order in which the attributes were set does not matter; their names and values do."""
    def attributes(**values: int) -> int:
        made: int = api.aclopCreateAttr()
        for name, value in values.items():
            assert api.aclopSetAttrInt(made, name.encode(), value) == 0
        return made

    sets = [attributes(axis=1, keep=2), attributes(keep=2, axis=1), attributes(keep=1, axis=2),
            attributes(axis=1, other=2)]
    assert chooser.update(1, attr=sets[0]) == 0
    assert [chooser.execute(1, attr=one) for one in sets] == [0, 0, NOT_FOUND, NOT_FOUND]
    for one in sets:
        api.aclopDestroyAttr(one)


def test_limit_of_0_kernel_choices_is_refused() -> None:
    assert api.aclopSetMaxOpQueueNum(0) == P


def test_kernel_choices_of_two_operators_of_one_shape_are_separate(
    chooser: Chooser, binary: bytes, raw_stream: int
) -> None:
    other = Chooser("TwinOf", binary, raw_stream)
    assert chooser.update(5) == 0
    assert other.execute(5) == NOT_FOUND
    assert other.update(5) == 0
    assert other.execute(5) == chooser.execute(5) == 0
    other.close()
