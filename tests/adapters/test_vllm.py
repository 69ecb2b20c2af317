"""vLLM-Ascend's allocator module by its ABI: the C symbols, the Python functions, failures; camem.py itself."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import random
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from support.child import run_python
from support.core import MIB, physical, physical_base  # noqa: F401

import acl
import acl.sim
import acl.vllm

camem = importlib.import_module("acl.adapters.vllm.vllm_ascend_C")
library = ctypes.CDLL(camem.__file__)
library.my_malloc.restype = ctypes.c_void_p
library.my_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.my_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.my_free.restype = None


class Books:
    """The two callbacks that camem.py registers, and a table of the live handles; a stand-in for `CaMemAllocator`."""

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


def test_camem_segment_is_backed_and_reported_to_its_callback(books: Books) -> None:
    device, size, address, record = books.take(5 * MIB)
    assert (device, size) == (0, 6 * MIB)
    assert physical() == 6 * MIB
    assert ctypes.c_void_p.from_address(record).value  # camem.py's p_memHandle: the driver's handle
    assert camem.segments() == [(0, 6 * MIB, address, True)]


def test_camem_sleep_returns_the_memory_and_keeps_the_address(books: Books) -> None:
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


def test_freed_camem_segment_leaves_no_memory_behind(books: Books, no_leaks: None) -> None:
    handle = books.take(2 * MIB)
    books.give(handle)
    assert camem.segments() == []


def test_a_sleeping_segment_can_be_freed(books: Books, no_leaks: None) -> None:
    handle = books.take(2 * MIB)
    camem.python_unmap_and_release(*handle)
    books.give(handle)
    assert camem.segments() == []


def test_camem_callbacks_are_kept_alive_while_a_segment_is_live(sim: ModuleType) -> None:
    first, second = Books(), Books()
    camem.init_module(first.on_malloc, first.on_free)
    handle = first.take(2 * MIB)
    camem.init_module(second.on_malloc, second.on_free)
    kept = first.handles
    del first
    library.my_free(handle[2], handle[1], handle[0], None)
    assert kept == {} and camem.segments() == []


def test_camem_segment_is_on_the_requested_device(books: Books) -> None:
    handle = books.take(2 * MIB, device=1)
    assert handle[0] == 1
    assert acl.Device.current() == acl.Device(0)
    camem.python_unmap_and_release(*handle)
    camem.python_create_and_map(*handle)
    assert acl.Device.current() == acl.Device(0)


def test_camem_allocation_of_0_or_fewer_bytes_returns_null(books: Books) -> None:
    assert library.my_malloc(0, 0, None) is None
    assert library.my_malloc(-5, 0, None) is None
    assert books.handles == {}


@pytest.mark.parametrize("call", ["aclrtReserveMemAddress", "aclrtMallocPhysical", "aclrtMapMem"])
def test_camem_allocation_returns_null_if_a_driver_call_fails(
    books: Books, no_leaks: None, call: str, unraisable: list[BaseException]
) -> None:
    with acl.sim.fault(call, code=207001):
        assert library.my_malloc(2 * MIB, 0, None) is None
    assert books.handles == {}
    assert isinstance(unraisable[0], acl.AclError) and call in str(unraisable[0])


@pytest.mark.parametrize("call", ["aclrtMallocPhysical", "aclrtMapMem"])
def test_segment_stays_asleep_if_a_wake_fails(books: Books, call: str) -> None:
    handle = books.take(2 * MIB)
    camem.python_unmap_and_release(*handle)
    with acl.sim.fault(call, code=207001), pytest.raises(acl.AclError, match=call):
        camem.python_create_and_map(*handle)
    assert physical() == 0
    camem.python_create_and_map(*handle)
    assert physical() == 2 * MIB


def test_segment_stays_awake_if_the_unmap_of_a_sleep_fails(books: Books) -> None:
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
    camem.python_create_and_map(*handle)  # uses the memory that was not freed
    assert physical() == 2 * MIB
    camem.python_unmap_and_release(*handle)
    assert physical() == 0


def test_camem_callback_that_raises_leaves_no_segment(
    books: Books, no_leaks: None, unraisable: list[BaseException]
) -> None:
    def refuse(handle: tuple[int, int, int, int]) -> None:
        raise KeyError("no room in the books")

    camem.init_module(refuse, books.on_free)
    assert library.my_malloc(2 * MIB, 0, None) is None
    assert isinstance(unraisable[0], KeyError)


@pytest.mark.parametrize("answer", [None, (0, 1, 2, 3)])
def test_wrong_free_callback_is_reported_and_the_segment_is_freed(
    books: Books, no_leaks: None, unraisable: list[BaseException], answer: object
) -> None:
    camem.init_module(books.on_malloc, lambda address: answer)
    handle = books.take(2 * MIB)
    books.handles.clear()
    books.give(handle)
    assert "expected" in str(unraisable[0])


def test_free_of_a_foreign_address_is_reported(books: Books, unraisable: list[BaseException]) -> None:
    library.my_free(0x12345000, 4096, 0, None)
    assert "no segment of this module" in str(unraisable[0])


@pytest.mark.parametrize("call", [camem.python_create_and_map, camem.python_unmap_and_release])
def test_error_names_the_wrong_part_of_a_handle(books: Books, call: Callable[..., None]) -> None:
    handle = books.take(2 * MIB)
    for index, name in enumerate(("device", "size", "d_mem", "p_memHandle")):
        wrong: list[object] = list(handle)
        wrong[index] = "5"
        with pytest.raises(TypeError, match=f"{name} must be an int, not str"):
            call(*wrong)
    with pytest.raises(ValueError, match="no segment of this module"):
        call(-1, *handle[1:])


def test_camem_handles_of_wrong_form_are_refused(books: Books) -> None:
    device, size, address, record = books.take(2 * MIB)
    for wrong in ((1, size, address, record), (device, size + 1, address, record), (device, size, 64, record)):
        with pytest.raises(ValueError, match="no segment of this module"):
            camem.python_unmap_and_release(*wrong)
    with pytest.raises(ValueError, match="mapped already"):
        camem.python_create_and_map(device, size, address, record)
    camem.python_unmap_and_release(device, size, address, record)
    with pytest.raises(ValueError, match="is not mapped"):
        camem.python_unmap_and_release(device, size, address, record)


def test_camem_callback_that_is_not_callable_is_refused() -> None:
    with pytest.raises(TypeError, match="python_free must be callable, not int"):
        camem.init_module(print, 5)


def test_camem_gives_no_memory_before_init_module() -> None:
    done = run_python("""
        import ctypes
        from acl.adapters.vllm import vllm_ascend_C as module
        library = ctypes.CDLL(module.__file__)
        library.my_malloc.restype = ctypes.c_void_p
        print(library.my_malloc(ctypes.c_ssize_t(4096), 0, None))
    """)
    assert done.stdout.split() == ["None"]
    assert "my_malloc was called before init_module" in done.stderr


def test_an_exit_with_living_segments_is_silent() -> None:
    done = run_python("""
        import ctypes, atexit
        from acl.adapters.vllm import vllm_ascend_C as module
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


# ---- on a pool ----------------------------------------------------------------------------------


class TaggedBooks(Books):
    """Callbacks of an object with a `current_tag`, an attribute that `CaMemAllocator` has too."""

    current_tag = "default"


@pytest.fixture
def pool(sim: ModuleType) -> Iterator[acl.Pool]:
    acl.Device(0).use()
    with acl.Pool(0, limit=32 * MIB, name="shared") as made:
        camem.serve(made)
        yield made
        camem.serve(None)
        assert made.check() == 0


@pytest.fixture
def tagged(pool: acl.Pool) -> Iterator[TaggedBooks]:
    made = TaggedBooks()
    camem.init_module(made.on_malloc, made.on_free)
    yield made
    for handle in list(made.handles.values()):
        made.give(handle)
    assert camem.segments() == []


def test_segments_are_the_pools_blocks_under_camems_tags(pool: acl.Pool, tagged: TaggedBooks) -> None:
    tagged.current_tag = "weights"
    weights = tagged.take(5 * MIB)
    tagged.current_tag = "kv_cache"
    cache = tagged.take(8 * MIB)
    assert (weights[1], cache[1]) == (6 * MIB, 8 * MIB)
    assert weights[2] % (2 * MIB) == cache[2] % (2 * MIB) == 0
    assert acl.memory_ledger(0).tags() == {"kv_cache": 8 * MIB, "weights": 6 * MIB}
    assert pool.stats().reserved == physical() == 14 * MIB


def test_ledger_counts_camem_segments_allocated_from_the_driver(sim: ModuleType) -> None:
    acl.Device(0).use()
    acl.vllm.install()
    try:
        made = TaggedBooks()
        camem.init_module(made.on_malloc, made.on_free)
        before = acl.memory_ledger(0).sum(owner="process")
        made.current_tag = "weights"
        handles = [made.take(5 * MIB), made.take(2 * MIB), made.take(4 * MIB, device=1)]
        made.current_tag = "kv_cache"
        handles.append(made.take(8 * MIB))
        ledger = acl.memory_ledger(0)
        assert ledger.tags() == {"kv_cache": 8 * MIB, "weights": 8 * MIB}
        assert sum(row.bytes for row in ledger.rows) == ledger.total
        assert ledger.sum(owner="process") - before == 16 * MIB == physical()
        assert [row.blocks for row in ledger.select(name="vllm-ascend", tag="weights")] == [2]
        assert "vllm-ascend kv_cache" in str(ledger)
        assert acl.memory_ledger(1).tags() == {"weights": 4 * MIB}
        camem.python_unmap_and_release(*handles[0])
        ledger = acl.memory_ledger(0)
        assert ledger.tags() == {"kv_cache": 8 * MIB, "weights": 2 * MIB}
        assert sum(row.bytes for row in ledger.rows) == ledger.total
        for handle in handles:
            made.give(handle)
        assert acl.memory_ledger(0).tags() == {}
    finally:
        acl.vllm.uninstall()


def test_memory_of_sleeping_segments_can_be_used_by_the_pool(pool: acl.Pool, tagged: TaggedBooks) -> None:
    first, second = tagged.take(12 * MIB), tagged.take(16 * MIB)
    with pytest.raises(acl.OutOfMemoryError):
        pool.alloc(10 * MIB)
    camem.python_unmap_and_release(*first)
    assert physical() == 16 * MIB
    ledger = acl.memory_ledger(0)
    assert sum(row.bytes for row in ledger.rows) == ledger.total
    assert pool.stats().asleep == 12 * MIB
    other = pool.alloc(10 * MIB)
    with pytest.raises(acl.OutOfMemoryError, match="asleep"):
        camem.python_create_and_map(*first)
    assert pool.stats().asleep == 12 * MIB
    other.close()
    camem.python_create_and_map(*first)  # uses the page of the closed block
    assert pool.stats().asleep == 0
    acl.rt.memset(first[2], first[1], 7, first[1])
    acl.rt.memset(second[2], second[1], 9, second[1])
    assert acl.to_bytes(acl.Buffer.from_address(first[2] + first[1] - 8, 8)) == b"\7" * 8
    assert physical() <= 32 * MIB


def test_segments_of_a_pool_sleep_independently(pool: acl.Pool, tagged: TaggedBooks) -> None:
    handles = [tagged.take(2 * MIB) for _ in range(6)]
    for number, handle in enumerate(handles):
        acl.rt.memset(handle[2], handle[1], number, handle[1])
    for handle in handles[::2]:
        camem.python_unmap_and_release(*handle)
    assert physical() == 6 * MIB
    for number in (1, 3, 5):
        assert acl.to_bytes(acl.Buffer.from_address(handles[number][2], 4)) == bytes([number] * 4)
    for handle in handles[4::-2]:
        camem.python_create_and_map(*handle)
    assert physical() == 12 * MIB and pool.stats().asleep == 0


def test_a_freed_segment_of_a_pool_serves_others(pool: acl.Pool, tagged: TaggedBooks) -> None:
    awake, asleep = tagged.take(16 * MIB), tagged.take(16 * MIB)
    camem.python_unmap_and_release(*asleep)
    tagged.give(asleep)
    tagged.give(awake)
    assert pool.stats().allocated == 0
    with acl.Stream(0) as stream:
        large = pool.alloc(30 * MIB, stream)
        assert large.size == 30 * MIB
        large.close()


@pytest.mark.parametrize("call", ["aclrtMallocPhysical", "aclrtMapMem"])
@pytest.mark.parametrize("nth", [1, 3])
def test_pool_segment_stays_asleep_if_a_wake_fails(
    pool: acl.Pool, tagged: TaggedBooks, call: str, nth: int
) -> None:
    handle = tagged.take(8 * MIB)
    camem.python_unmap_and_release(*handle)
    with acl.sim.fault(call, nth=nth, code=207001), pytest.raises(acl.OutOfMemoryError):
        camem.python_create_and_map(*handle)
    assert (pool.stats().asleep, pool.check()) == (8 * MIB, 0)
    camem.python_create_and_map(*handle)
    assert pool.stats().asleep == 0


@pytest.mark.parametrize(("rule", "asleep"), [({}, 0), ({"nth": 1}, 0), ({"nth": 3}, 8)])
def test_failed_sleep_of_a_pool_segment_can_be_undone(
    pool: acl.Pool, tagged: TaggedBooks, rule: dict[str, int], asleep: int
) -> None:
    handle = tagged.take(8 * MIB)
    with acl.sim.fault("aclrtUnmapMem", code=507899, **rule), pytest.raises(acl.AclError, match="asleep"):
        camem.python_unmap_and_release(*handle)
    assert (pool.stats().asleep, pool.check()) == (asleep * MIB, 0)
    assert camem.segments()[0][3] == (asleep == 0)
    if asleep:
        camem.python_create_and_map(*handle)
    acl.rt.memset(handle[2], handle[1], 3, handle[1])
    camem.python_unmap_and_release(*handle)
    assert physical() == 0


def test_segment_without_memory_in_the_pool_is_null_and_reported(
    pool: acl.Pool, tagged: TaggedBooks, unraisable: list[BaseException]
) -> None:
    assert library.my_malloc(40 * MIB, 0, None) is None
    assert isinstance(unraisable[0], acl.OutOfMemoryError)
    assert tagged.handles == {} and pool.stats().allocated == 0


def test_each_device_has_camem_segments_of_its_own(pool: acl.Pool, tagged: TaggedBooks) -> None:
    handle = tagged.take(2 * MIB, device=1)
    assert handle[0] == 1 and pool.stats().allocated == 0
    camem.python_unmap_and_release(*handle)
    camem.python_create_and_map(*handle)


def test_segments_sleep_and_wake_beside_streams_that_grow_and_steal(pool: acl.Pool, tagged: TaggedBooks) -> None:
    """Segments sleep in turn while two streams allocate the remaining memory and steal pages from each other."""
    handles = [tagged.take(4 * MIB) for _ in range(4)]
    stop, failures = threading.Event(), list[BaseException]()

    def press(seed: int) -> None:
        numbers = random.Random(seed)
        try:
            with acl.Device(0), acl.Stream(0) as stream:
                live: list[acl.Buffer] = []
                while not stop.is_set():
                    try:
                        live.append(pool.alloc(numbers.randrange(1, 3 * MIB), stream))
                    except acl.OutOfMemoryError:
                        live.clear()
                    if len(live) > 6:
                        live.pop(numbers.randrange(len(live))).close()
                live.clear()
                stream.synchronize()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=press, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    numbers, misses = random.Random(3), 0
    try:
        for turn in range(60):
            handle = numbers.choice(handles)
            camem.python_unmap_and_release(*handle)
            while True:
                try:
                    camem.python_create_and_map(*handle)
                    break
                except acl.OutOfMemoryError:
                    misses += 1
                    time.sleep(0.001)
            acl.rt.memset(handle[2], handle[1], turn, handle[1])
            assert acl.to_bytes(acl.Buffer.from_address(handle[2] + handle[1] - 4, 4)) == bytes([turn] * 4)
    finally:
        stop.set()
        for thread in threads:
            thread.join(300)
    print("seeds 1 2 3, wakes that found no memory at once:", misses)
    assert failures == []
    assert pool.stats().asleep == 0 and pool.check() == 0


@pytest.mark.parametrize(("wrong", "error"), [(3, TypeError), ("pool", TypeError)])
def test_vllm_install_refuses_an_argument_that_is_not_a_pool(wrong: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"pool must be an acl\.Pool or None, not"):
        acl.vllm.install(wrong)  # type: ignore[arg-type]
    assert not acl.vllm.installed()


def test_vllm_install_refuses_a_pool_without_virtual_memory(sim: ModuleType) -> None:
    with acl.Pool(0, segments=True) as pool, pytest.raises(ValueError, match="segments=True cannot sleep"):
        acl.vllm.install(pool)
    assert not acl.vllm.installed()


# ---- in place of vLLM-Ascend's own module --------------------------------------------------------


def test_vllm_install_works_in_both_orders_of_import(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Return the folder of vllm-ascend's package with camem.py, from PyPI or from ACLPOOL_VLLM_ASCEND (a wheel)."""
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
@pytest.mark.parametrize("memory", ["segments", "pool"])
def test_vllm_ascends_own_camem_sleeps_and_wakes(vendor_folder: Path, memory: str) -> None:
    program = str(Path(__file__).with_name("vllm_sleep.py"))
    line = [sys.executable, "-m", "acl.tools.sim", "--", sys.executable, program, str(vendor_folder), memory]
    path = os.pathsep.join([str(Path(acl.__file__).parents[1]), *sys.path])
    done = subprocess.run(
        line, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "segments left 0 bytes left 0"
    assert "Exception ignored" not in done.stderr


def test_uninstall_restores_the_earlier_functions_of_camem(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("vllm_ascend")
    other = ModuleType("vllm_ascend.device_allocator.camem")
    for name in ("init_module", "python_create_and_map", "python_unmap_and_release", "lib_name"):
        setattr(other, name, None)
    other.camem_available = False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm_ascend", package)
    monkeypatch.setitem(sys.modules, other.__name__, other)
    before = dict(vars(other))
    acl.vllm.install()
    assert other.camem_available and other.lib_name == camem.__file__  # type: ignore[attr-defined]
    acl.vllm.uninstall()
    assert dict(vars(other)) == before
