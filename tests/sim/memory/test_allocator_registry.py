"""aclrtAllocator*: registering, replacing and removing an allocator, and the strict mode."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.calls import api, out
from support.child import run_python
from support.models import sim_message

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
ADVISE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
ADDRESS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

STREAM = 0x1234560  # not a stream: registration does not read a stream's memory


class Custom:
    """An allocator that records its calls; block n has the address n * 16."""

    def __init__(self, object_: int = 0x77) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.alloc = ALLOC(lambda o, n: self.note("alloc", o, n) or 5)
        self.free = FREE(lambda o, b: self.note("free", o, b))
        self.advise = ADVISE(lambda o, n, a: self.note("advise", o, n, a) or 6)
        self.address = ADDRESS(lambda b: self.note("address", b) or b * 16)
        self.object = object_

    def note(self, *call: Any) -> None:
        self.calls.append(call)

    def describe(self) -> int:
        desc: int = api.aclrtAllocatorCreateDesc()
        assert api.aclrtAllocatorSetObjToDesc(desc, self.object) == 0
        for name, function in (
            ("Alloc", self.alloc), ("Free", self.free), ("AllocAdvise", self.advise),
            ("GetAddrFromBlock", self.address),
        ):
            pointer = ctypes.cast(function, ctypes.c_void_p)
            assert getattr(api, f"aclrtAllocatorSet{name}FuncToDesc")(desc, pointer) == 0
        return desc


def get(stream: int) -> list[int | None] | int:
    found = [out() for _ in range(6)]
    code = api.aclrtAllocatorGetByStream(stream, *[ctypes.byref(x) for x in found])
    return code or [x.value for x in found]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    api.aclrtAllocatorUnregister(STREAM)


def test_the_five_functions_come_back_and_work() -> None:
    custom = Custom(0x42)
    desc = custom.describe()
    assert api.aclrtAllocatorRegister(STREAM, desc) == 0
    found = get(STREAM)
    assert isinstance(found, list)
    assert found[:2] == [desc, 0x42]
    _, object_, alloc, free, advise, address = found
    block = ALLOC(alloc)(object_, 100)
    assert ADDRESS(address)(block) == 80
    FREE(free)(object_, block)
    assert ADVISE(advise)(object_, 64, 4096) == 6
    assert custom.calls == [
        ("alloc", 0x42, 100), ("address", 5), ("free", 0x42, 5), ("advise", 0x42, 64, 4096),
    ]


def test_the_descriptor_is_copied() -> None:
    custom = Custom(0x11)
    desc = custom.describe()
    assert api.aclrtAllocatorRegister(STREAM, desc) == 0
    assert api.aclrtAllocatorSetObjToDesc(desc, 0x99) == 0
    assert get(STREAM)[1] == 0x11  # type: ignore[index]
    assert api.aclrtAllocatorDestroyDesc(desc) == 0
    assert get(STREAM)[:2] == [desc, 0x11]  # type: ignore[index]
    assert api.aclrtAllocatorDestroyDesc(desc) == 100000


def test_the_last_registration_wins_and_unregistering_forgets() -> None:
    first, second = Custom(1), Custom(2)
    assert api.aclrtAllocatorRegister(STREAM, first.describe()) == 0
    assert api.aclrtAllocatorRegister(STREAM, second.describe()) == 0
    assert get(STREAM)[1] == 2  # type: ignore[index]
    assert api.aclrtAllocatorUnregister(STREAM) == 0
    assert get(STREAM) == 100000
    assert api.aclrtAllocatorUnregister(STREAM) == 0


def test_a_failed_query_leaves_the_outputs() -> None:
    found = [out(value=5) for _ in range(6)]
    assert api.aclrtAllocatorGetByStream(STREAM, *[ctypes.byref(x) for x in found]) == 100000
    assert [x.value for x in found] == [5] * 6


def test_an_entry_outlives_its_stream() -> None:
    stream = out()
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    custom = Custom()
    assert api.aclrtAllocatorRegister(stream, custom.describe()) == 0
    assert api.aclrtDestroyStream(stream) == 0
    assert isinstance(get(stream.value), list)
    assert api.aclrtAllocatorUnregister(stream) == 0


def test_many_streams_from_many_threads() -> None:
    customs = [Custom(i + 1) for i in range(4)]
    descs = [c.describe() for c in customs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for i in range(200):
            handle = 0x10000 + number * 1000 + i
            if api.aclrtAllocatorRegister(handle, descs[number]):
                wrong.append(handle)
            found = get(handle)
            if not isinstance(found, list) or found[1] != number + 1:
                wrong.append(handle)
            if i % 2:
                api.aclrtAllocatorUnregister(handle)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    left = [isinstance(get(0x10000 + i), list) for i in range(200)]
    assert left == [i % 2 == 0 for i in range(200)]
    for n in range(4):
        for i in range(200):
            api.aclrtAllocatorUnregister(0x10000 + n * 1000 + i)


@pytest.mark.parametrize("left_out", ["Alloc", "Free", "GetAddrFromBlock"])
def test_a_descriptor_without_a_function_is_refused_at_registration(left_out: str) -> None:
    desc = api.aclrtAllocatorCreateDesc()
    assert api.aclrtAllocatorSetObjToDesc(desc, 1) == 0
    for name in ("Alloc", "Free", "GetAddrFromBlock"):
        if name != left_out:
            assert getattr(api, f"aclrtAllocatorSet{name}FuncToDesc")(desc, 4096) == 0
    assert api.aclrtAllocatorRegister(STREAM, desc) == 100000
    assert f"the descriptor's {left_out[0].lower()}{left_out[1:]} function was never set" in sim_message()
    assert get(STREAM) == 100000
    assert getattr(api, f"aclrtAllocatorSet{left_out}FuncToDesc")(desc, 4096) == 0
    assert api.aclrtAllocatorRegister(STREAM, desc) == 0
    assert api.aclrtAllocatorDestroyDesc(desc) == 0


def test_calling_an_advice_never_set_says_so_and_dies() -> None:
    done = run_python("""
        import ctypes, sys
        from acl import sim
        lib = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
        lib.aclrtAllocatorCreateDesc.restype = ctypes.c_void_p
        desc = ctypes.c_void_p(lib.aclrtAllocatorCreateDesc())
        lib.aclrtAllocatorSetObjToDesc(desc, ctypes.c_void_p(1))
        for name in ("Alloc", "Free", "GetAddrFromBlock"):
            getattr(lib, f"aclrtAllocatorSet{name}FuncToDesc")(desc, ctypes.c_void_p(4096))
        lib.aclrtAllocatorRegister(ctypes.c_void_p(16), desc)
        v = [ctypes.c_void_p() for _ in range(6)]
        lib.aclrtAllocatorGetByStream(ctypes.c_void_p(16), *[ctypes.byref(x) for x in v])
        ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(v[4].value)(1, 64, None)
    """)
    assert done.returncode == -6
    assert "allocAdvise function was called but never set" in done.stderr


STRICT = """
    import ctypes
    from acl import sim
    lib = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
    lib.aclrtAllocatorCreateDesc.restype = ctypes.c_void_p
    desc = ctypes.c_void_p(lib.aclrtAllocatorCreateDesc())
    lib.aclrtAllocatorSetObjToDesc(desc, ctypes.c_void_p(1))
    lib.aclInit(None); lib.aclrtSetDevice(0)
    stream = ctypes.c_void_p()
    lib.aclrtCreateStream(ctypes.byref(stream))
    for name in ("Alloc", "Free", "GetAddrFromBlock"):
        getattr(lib, f"aclrtAllocatorSet{name}FuncToDesc")(desc, ctypes.c_void_p(4096))
    print(lib.aclrtAllocatorRegister(stream, desc))
    lib.aclrtAllocatorSetAllocAdviseFuncToDesc(desc, ctypes.c_void_p(4096))
    print(lib.aclrtAllocatorRegister(ctypes.c_void_p(16), desc))
    print(lib.aclrtAllocatorRegister(stream, desc))
    lib.aclrtDestroyStream(stream)
    out = ctypes.c_void_p()
    print(lib.aclrtAllocatorGetByStream(stream, ctypes.byref(out), None, None, None, None, None))
    print(lib.aclrtAllocatorUnregister(stream))
"""


@pytest.mark.parametrize(
    ("strict", "expected"),
    [("1", ["100000", "107017", "0", "107017", "0"]), ("0", ["0", "0", "0", "0", "0"])],
)
def test_strict_mode_refuses_what_the_runtime_survives(strict: str, expected: list[str]) -> None:
    done = run_python(STRICT, ACL_SIM_STRICT_ALLOCATORS=strict)
    assert done.stdout.split() == expected, done.stderr


def test_a_chip_without_registration_refuses() -> None:
    code = STRICT.replace("lib.aclInit(None)", "print('soc', end=' '); lib.aclInit(None)")
    done = run_python(code, ACL_SIM_SOC="Ascend310B1", ACL_SIM_STRICT_ALLOCATORS="0")
    assert done.stdout.split()[1:4] == ["207000", "207000", "207000"]
