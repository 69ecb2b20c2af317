"""Damaged and malicious kernel binaries for chips, which the simulator reads but does not run."""

from __future__ import annotations

import ctypes

import pytest
from support.binaries import device_binary
from support.calls import api, out
from support.models import sim_message

pytestmark = pytest.mark.usefixtures("device")


def loaded(data: bytes) -> tuple[int, int]:
    """Load a binary. Return the status and the handle."""
    handle = out()
    status: int = api.aclrtBinaryLoadFromData(data, len(data), None, ctypes.byref(handle))
    return status, handle.value or 0


def function_status(handle: int, name: str) -> int:
    function = out()
    status: int = api.aclrtBinaryGetFunction(handle, name.encode(), ctypes.byref(function))
    return status


def test_functions_behind_several_tables_are_found() -> None:
    status, handle = loaded(device_binary(["add"], variables=[("v", 64, 8)], tables=3))
    assert status == 0, sim_message()
    assert function_status(handle, "add") == 0
    assert function_status(handle, "sub") == 107000
    assert api.aclrtBinaryUnLoad(handle) == 0


def test_tables_that_overlap_are_not_read_again_and_again() -> None:
    """The simulator reads at most n / 24 symbols of a file of n bytes, even if its tables claim more."""
    many = [(f"v{i}", 0, 0) for i in range(100)]
    status, handle = loaded(device_binary(["add"], variables=many))
    assert status == 0, sim_message()
    assert api.aclrtBinaryUnLoad(handle) == 0
    status, _ = loaded(device_binary(["add"], variables=many, tables=1000))
    assert status == 107000
    assert "not a 64-bit ELF file with functions" in sim_message()


def test_names_in_a_table_without_an_end_are_no_names() -> None:
    data = device_binary(["add"])
    assert loaded(data)[0] == 0
    assert loaded(data.replace(b"add\0", b"addx"))[0] == 107000


@pytest.mark.parametrize(("place", "size", "inside"), [(64, 8, True), (0, 1 << 40, False), (1 << 63, 8, False)])
def test_a_variable_outside_the_file_is_not_found(place: int, size: int, inside: bool) -> None:
    status, handle = loaded(device_binary(["add"], variables=[("v", place, size)]))
    assert status == 0, sim_message()
    address, length = out(), out(ctypes.c_size_t)
    found = api.aclrtBinaryGetGlobal(handle, b"v", ctypes.byref(address), ctypes.byref(length))
    assert (found == 0) == inside, found
    assert api.aclrtBinaryUnLoad(handle) == 0
