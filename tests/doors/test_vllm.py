"""vLLM-Ascend's allocator module by its ABI: the C symbols, the Python functions, failures; camem.py itself."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from support.child import run_python
from support.core import MIB, physical, physical_base  # noqa: F401

import acl
import acl.sim
import acl.vllm

camem = importlib.import_module("acl.vllm.vllm_ascend_C")
library = ctypes.CDLL(camem.__file__)
library.my_malloc.restype = ctypes.c_void_p
library.my_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.my_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.my_free.restype = None


class Books:
    """What camem.py does with the two functions, and nothing more."""

    def __init__(self) -> None:
        self.handles: dict[int, tuple[int, int, int, int]] = {}

    def on_malloc(self, handle: tuple[int, int, int, int]) -> None:
        self.handles[handle[2]] = handle

    def on_free(self, address: int) -> tuple[int, int, int, int]:
        return self.handles.pop(address)

    def take(self, size: int, device: int = 0) -> tuple[int, int, int, int]:
        address = library.my_malloc(size, device, None)
        assert address
        return self.handles[address]

    def give(self, handle: tuple[int, int, int, int]) -> None:
        library.my_free(handle[2], handle[1], handle[0], None)


@pytest.fixture
def books(sim: ModuleType) -> Iterator[Books]:
    acl.Device(0).use()
    made = Books()
    camem.init_module(made.on_malloc, made.on_free)
    yield made
    for handle in list(made.handles.values()):
        made.give(handle)
    assert camem.segments() == []


def test_a_segment_is_told_and_backed(books: Books) -> None:
    device, size, address, record = books.take(5 * MIB)
    assert (device, size) == (0, 6 * MIB)
    assert physical() == 6 * MIB
    assert ctypes.c_void_p.from_address(record).value  # camem.py's p_memHandle: the driver's handle
    assert camem.segments() == [(0, 6 * MIB, address, True)]


def test_sleep_gives_the_memory_back_and_keeps_the_address(books: Books) -> None:
    handle = books.take(4 * MIB)
    other = books.take(2 * MIB)
    camem.python_unmap_and_release(*handle)
    assert physical() == 2 * MIB
    third = books.take(4 * MIB)
    assert third[2] not in range(handle[2], handle[2] + handle[1])
    camem.python_create_and_map(*handle)
    acl.Buffer.from_address(handle[2], handle[1])
    acl.rt.memset(handle[2], handle[1], 7, handle[1])
    assert acl.to_bytes(acl.Buffer.from_address(handle[2], 16)) == b"\7" * 16
    assert physical() == 10 * MIB
    assert {handle[2], other[2], third[2]} == set(books.handles)


def test_a_freed_segment_leaves_nothing(books: Books, no_leaks: None) -> None:
    handle = books.take(2 * MIB)
    books.give(handle)
    assert camem.segments() == []


def test_a_sleeping_segment_can_be_freed(books: Books, no_leaks: None) -> None:
    handle = books.take(2 * MIB)
    camem.python_unmap_and_release(*handle)
    books.give(handle)
    assert camem.segments() == []


def test_the_functions_are_held_while_a_segment_lives(sim: ModuleType) -> None:
    first, second = Books(), Books()
    camem.init_module(first.on_malloc, first.on_free)
    handle = first.take(2 * MIB)
    camem.init_module(second.on_malloc, second.on_free)
    kept = first.handles
    del first
    library.my_free(handle[2], handle[1], handle[0], None)
    assert kept == {} and camem.segments() == []


def test_the_device_is_the_one_asked_for(books: Books) -> None:
    handle = books.take(2 * MIB, device=1)
    assert handle[0] == 1
    assert acl.Device.current() == acl.Device(0)
    camem.python_unmap_and_release(*handle)
    camem.python_create_and_map(*handle)
    assert acl.Device.current() == acl.Device(0)


def test_size_zero_and_less_give_nothing(books: Books) -> None:
    assert library.my_malloc(0, 0, None) is None
    assert library.my_malloc(-5, 0, None) is None
    assert books.handles == {}


@pytest.mark.parametrize("call", ["aclrtReserveMemAddress", "aclrtMallocPhysical", "aclrtMapMem"])
def test_a_failing_driver_gives_null_and_leaves_nothing(
    books: Books, no_leaks: None, call: str, unraisable: list[BaseException]
) -> None:
    with acl.sim.fault(call, code=207001):
        assert library.my_malloc(2 * MIB, 0, None) is None
    assert books.handles == {}
    assert isinstance(unraisable[0], acl.AclError) and call in str(unraisable[0])


@pytest.mark.parametrize("call", ["aclrtMallocPhysical", "aclrtMapMem"])
def test_a_wake_that_fails_sleeps_on(books: Books, call: str) -> None:
    handle = books.take(2 * MIB)
    camem.python_unmap_and_release(*handle)
    with acl.sim.fault(call, code=207001), pytest.raises(acl.AclError, match=call):
        camem.python_create_and_map(*handle)
    assert physical() == 0
    camem.python_create_and_map(*handle)
    assert physical() == 2 * MIB


def test_a_sleep_whose_unmap_fails_stays_awake(books: Books) -> None:
    handle = books.take(2 * MIB)
    with acl.sim.fault("aclrtUnmapMem", code=507899), pytest.raises(acl.AclError, match="aclrtUnmapMem"):
        camem.python_unmap_and_release(*handle)
    assert camem.segments()[0][3]
    camem.python_unmap_and_release(*handle)
    assert physical() == 0


def test_a_sleep_whose_release_fails_can_be_finished_or_undone(books: Books) -> None:
    handle = books.take(2 * MIB)
    with acl.sim.fault("aclrtFreePhysical", code=507899), pytest.raises(acl.AclError, match="aclrtFreePhysical"):
        camem.python_unmap_and_release(*handle)
    camem.python_create_and_map(*handle)  # with the memory that was not taken
    assert physical() == 2 * MIB
    camem.python_unmap_and_release(*handle)
    assert physical() == 0


def test_a_function_that_raises_leaves_nothing(
    books: Books, no_leaks: None, unraisable: list[BaseException]
) -> None:
    def refuse(handle: tuple[int, int, int, int]) -> None:
        raise KeyError("no room in the books")

    camem.init_module(refuse, books.on_free)
    assert library.my_malloc(2 * MIB, 0, None) is None
    assert isinstance(unraisable[0], KeyError)


@pytest.mark.parametrize("answer", [None, (0, 1, 2, 3)])
def test_a_free_function_that_is_wrong_is_told_and_the_memory_goes(
    books: Books, no_leaks: None, unraisable: list[BaseException], answer: object
) -> None:
    camem.init_module(books.on_malloc, lambda address: answer)
    handle = books.take(2 * MIB)
    books.handles.clear()
    books.give(handle)
    assert "expected" in str(unraisable[0])


def test_a_foreign_address_is_told(books: Books, unraisable: list[BaseException]) -> None:
    library.my_free(0x12345000, 4096, 0, None)
    assert "no segment of this module" in str(unraisable[0])


def test_handles_are_checked(books: Books) -> None:
    device, size, address, record = books.take(2 * MIB)
    for wrong in ((1, size, address, record), (device, size + 1, address, record), (device, size, 64, record)):
        with pytest.raises(ValueError, match="no segment of this module"):
            camem.python_unmap_and_release(*wrong)
    with pytest.raises(ValueError, match="mapped already"):
        camem.python_create_and_map(device, size, address, record)
    camem.python_unmap_and_release(device, size, address, record)
    with pytest.raises(ValueError, match="is not mapped"):
        camem.python_unmap_and_release(device, size, address, record)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="python_free must be callable, not int"):
        camem.init_module(print, 5)


def test_before_init_module_there_is_no_memory() -> None:
    done = run_python("""
        import ctypes
        from acl.vllm import vllm_ascend_C as module
        library = ctypes.CDLL(module.__file__)
        library.my_malloc.restype = ctypes.c_void_p
        print(library.my_malloc(ctypes.c_ssize_t(4096), 0, None))
    """)
    assert done.stdout.split() == ["None"]
    assert "my_malloc was called before init_module" in done.stderr


def test_an_exit_with_living_segments_is_silent() -> None:
    done = run_python("""
        import ctypes, atexit
        from acl.vllm import vllm_ascend_C as module
        library = ctypes.CDLL(module.__file__)
        library.my_malloc.restype = ctypes.c_void_p
        library.my_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        handles = {}
        module.init_module(lambda h: handles.update({h[2]: h}), handles.pop)
        address = library.my_malloc(ctypes.c_ssize_t(4096), 0, None)
        class Late:
            def __del__(self, free=library.my_free, address=address):
                free(address, 4096, 0, None)
        import sys
        sys.late = Late()
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- in the place of the vendor's ---------------------------------------------------------------


def test_install_serves_both_orders_of_import(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("vllm_ascend")
    vendors = ModuleType("vllm_ascend.vllm_ascend_C")
    vendors.__dict__.update(init_module=len, python_create_and_map=len, python_unmap_and_release=len, __file__="C.so")
    early = SimpleNamespace(init_module=None, lib_name=None)
    monkeypatch.setitem(sys.modules, "vllm_ascend", package)
    monkeypatch.setitem(sys.modules, "vllm_ascend.vllm_ascend_C", vendors)
    monkeypatch.setitem(sys.modules, "vllm_ascend.device_allocator.camem", early)
    path = acl.vllm.install()
    try:
        assert Path(path).name.startswith("vllm_ascend_C")
        assert acl.vllm.installed()
        assert importlib.import_module("vllm_ascend.vllm_ascend_C") is camem is package.vllm_ascend_C
        assert (early.lib_name, early.init_module) == (path, camem.init_module)
        assert acl.vllm.install() == path
    finally:
        acl.vllm.uninstall()
    assert sys.modules["vllm_ascend.vllm_ascend_C"] is vendors
    assert (early.lib_name, early.init_module) == ("C.so", len)
    acl.vllm.uninstall()


def test_operators_without_the_vendors_library_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm_ascend", raising=False)
    try:
        with pytest.raises(ImportError, match="vllm_ascend_C"):
            acl.vllm.install(operators=True)
    finally:
        acl.vllm.uninstall()
    assert not acl.vllm.installed()


@pytest.fixture(scope="session")
def vendor_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of vllm-ascend's package with its camem.py, from PyPI or from ACLPOOL_VLLM_ASCEND (a wheel)."""
    folder = tmp_path_factory.mktemp("vllm")
    wheel = os.environ.get("ACLPOOL_VLLM_ASCEND")
    if not wheel:
        line = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
        line += ["--platform", "manylinux_2_34_x86_64", "--python-version", "311", "vllm-ascend==0.23.0"]
        if subprocess.run(line, capture_output=True, timeout=300).returncode != 0:
            pytest.skip("vllm-ascend 0.23.0 could not be downloaded")
        (wheel,) = map(str, folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as opened:
        for name in ("__init__.py", "camem.py"):
            opened.extract(f"vllm_ascend/device_allocator/{name}", folder)
    return folder / "vllm_ascend"


@pytest.mark.torch_npu
@pytest.mark.subprocess_heavy
@pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed")
def test_vllm_ascends_own_camem_sleeps_and_wakes(vendor_folder: Path) -> None:
    program = str(Path(__file__).with_name("vllm_sleep.py"))
    line = [sys.executable, "-m", "acl.tools.sim", "--", sys.executable, program, str(vendor_folder)]
    path = os.pathsep.join([str(Path(acl.__file__).parents[1]), *sys.path])
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=240, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "segments left 0 bytes left 0"
    assert "Exception ignored" not in done.stderr
