"""Tests of `acl.ort`, which gives ONNX Runtime host memory of the pool.

The host pool is tested alone, with sessions of the Python package `onnxruntime`, and with sessions of its C library.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.child import run_python

import acl.ort
import acl.sim
from acl.ort import HostPool, HostStats
from acl.tools.onnx_writer import Builder

MIB = 1 << 20
needs_onnxruntime = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason="onnxruntime is not installed"
)


def fill(address: int, size: int, value: int) -> None:
    ctypes.memset(address, value, size)


def read(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


# ---- the pool -----------------------------------------------------------------------------------


def test_onnx_runtime_blocks_are_aligned_writable_and_do_not_overlap() -> None:
    pool = HostPool(granule=65536)
    blocks = {pool.alloc(size): size for size in (0, 1, 63, 64, 65, 4096, 70_000, 3 * MIB)}
    assert all(address % 64 == 0 for address in blocks)
    for number, (address, size) in enumerate(blocks.items(), 1):
        fill(address, size, number)
    for number, (address, size) in enumerate(blocks.items(), 1):
        assert read(address, size) == bytes([number]) * size
    assert pool.check() == 0
    assert pool.stats()["live_blocks"] == len(blocks)
    for address in blocks:
        pool.free(address)
    assert pool.stats()["live_blocks"] == 0


def test_trim_gives_the_pages_back_to_the_system() -> None:
    before = HostPool.physical_bytes()
    pool = HostPool()
    addresses = [pool.alloc(5 * MIB) for _ in range(8)]
    for address in addresses:
        fill(address, 5 * MIB, 1)
    assert HostPool.physical_bytes() - before == pool.stats()["reserved"] >= 40 * MIB
    resident = _file_bytes()
    for address in addresses[1:]:
        pool.free(address)
    freed = pool.trim()
    assert freed >= 34 * MIB
    assert resident - _file_bytes() >= 33 * MIB
    assert read(addresses[0], 5 * MIB) == b"\1" * 5 * MIB
    pool.free(addresses[0])
    pool.trim()
    assert HostPool.physical_bytes() == before


def _file_bytes() -> int:
    """Return the bytes of system memory that the file behind the host pages uses."""
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if "aclpool host pages" in os.readlink(entry):
                return os.stat(entry).st_blocks * 512
        except FileNotFoundError:
            continue
    raise AssertionError("the host pages' file is not open")


def test_free_pages_serve_another_shape() -> None:
    """Even if no size repeats, the reserved bytes stay near the live bytes, because pages move."""
    pool = HostPool(granule=65536, arenas=1)
    seed = 5
    print("seed", seed)
    rng = random.Random(seed)
    live: list[tuple[int, int, int]] = []
    held = peak = 0
    for step in range(3000):
        size = rng.randrange(64, 4 * MIB)
        address = pool.alloc(size)
        fill(address, min(size, 256), step & 255)
        live.append((address, size, step & 255))
        held += size
        peak = max(peak, held)
        while held > 64 * MIB:
            address, size, value = live.pop(rng.randrange(len(live)))
            assert read(address, min(size, 256)) == bytes([value]) * min(size, 256)
            pool.free(address)
            held -= size
    assert pool.check() == 0
    assert pool.stats()["reserved_peak"] <= 1.12 * peak  # with several arenas, it would be 9 % more
    for address, _, _ in live:
        pool.free(address)


def test_allocations_above_the_limit_are_served_by_malloc() -> None:
    pool = HostPool(limit=8 * MIB)
    first = pool.alloc(6 * MIB)
    second = pool.alloc(6 * MIB)
    fill(second, 6 * MIB, 3)
    stats = HostStats.of(pool)
    assert (stats.reserved <= 8 * MIB, stats.overflow, stats.overflows, stats.failures) == (True, 6 * MIB, 1, 1)
    assert read(second, 6 * MIB) == b"\3" * 6 * MIB
    pool.free(second)
    assert pool.stats()["overflow"] == 0
    pool.free(first)
    third = pool.alloc(6 * MIB)
    assert pool.stats()["overflow"] == 0
    pool.free(third)


def test_weights_have_an_arena_of_their_own() -> None:
    pool = HostPool(arenas=1)
    weight, tensor = pool.alloc(MIB, weight=True), pool.alloc(MIB)
    assert abs(weight - tensor) > 1 << 30
    pool.free(weight)
    pool.free(tensor)


def test_threads_allocate_and_free_for_each_other() -> None:
    pool = HostPool(arenas=3, granule=65536)
    passed: list[tuple[int, int, int]] = []
    lock = threading.Lock()
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(2000):
            size = rng.randrange(1, 300_000)
            address = pool.alloc(size)
            fill(address, min(size, 64), seed)
            with lock:
                passed.append((address, size, seed))
                address, size, value = passed.pop(rng.randrange(len(passed)))
            if read(address, min(size, 64)) != bytes([value]) * min(size, 64):
                wrong.append((address, size, value))
            pool.free(address)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 6)]
    print("seeds 1 to 5")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.check() == 0
    assert pool.stats()["live_blocks"] == len(passed) == 0


def test_dropped_host_pool_returns_all_memory() -> None:
    before = HostPool.physical_bytes()
    pool = HostPool()
    pool.free(pool.alloc(9 * MIB))
    del pool
    assert HostPool.physical_bytes() == before


def test_dropped_host_pool_keeps_live_blocks_valid() -> None:
    pool = HostPool()
    address = pool.alloc(MIB)
    fill(address, MIB, 4)
    del pool
    assert read(address, MIB) == b"\4" * MIB


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"granule": 100_000}, "granule must be a power of two"),
        ({"limit": 100}, "limit must be at least one granule"),
        ({"limit": "lots"}, "limit must look like '8GiB' or '512 MiB', not 'lots'"),
        ({"arenas": 0}, "arenas must be 1 to 64, not 0"),
        ({"arenas": 65}, "arenas must be 1 to 64, not 65"),
    ],
)
def test_wrong_options_of_a_host_pool_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HostPool(**options)


@pytest.mark.parametrize("name", ["limit", "granule", "arenas"])
def test_host_pool_option_of_a_wrong_type_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be an int.*, not float"):
        HostPool(**{name: 1.5})


def test_impossible_sizes_of_a_host_pool_are_refused_by_name() -> None:
    pool = HostPool()
    with pytest.raises(ValueError, match="size must be at least 0, not -1"):
        pool.alloc(-1)
    with pytest.raises(ValueError, match="to must look like"):
        pool.trim("some")


def test_host_pool_sizes_may_be_texts() -> None:
    pool = HostPool("64MiB", "64KiB")
    assert (pool.limit, pool.granule) == (64 * MIB, 65536)


def test_the_child_of_a_fork_gets_malloc_and_leaves_the_parents_memory_alone() -> None:
    done = run_python("""
        import ctypes, os
        from acl.ort import HostPool
        pool = HostPool()
        address = pool.alloc(100)
        ctypes.memset(address, 1, 100)
        if os.fork() == 0:
            other = pool.alloc(100)
            ctypes.memset(other, 2, 100)
            pool.free(address)
            pool.free(other)
            try:
                pool.trim()
            except Exception as error:
                print(type(error).__name__, flush=True)
            os._exit(0)
        os.wait()
        print(ctypes.string_at(address, 100) == bytes([1]) * 100, pool.stats()["live_blocks"], pool.check())
    """)
    assert done.stdout.splitlines() == ["RuntimeError", "True 1 0"], done.stderr


def test_host_pool_needs_no_device() -> None:
    done = run_python(
        """
        import warnings
        import sys
        from pathlib import Path
        warnings.simplefilter("error")
        import acl.ort
        pool = acl.ort.HostPool()
        pool.free(pool.alloc(5 << 20))
        maps = Path("/proc/self/maps").read_text()
        print(pool.trim() > 0, "libascendcl" in maps, "numpy" in sys.modules)
        """,
        ACL_BACKEND="",
    )
    assert (done.stdout.split(), done.stderr) == (["True", "False", "False"], "")


# ---- sessions of the package --------------------------------------------------------------------


def network(width: int = 128, layers: int = 4) -> bytes:
    rng = np.random.default_rng(3)
    builder = Builder(name="mlp")
    x = builder.input("x", "float32", ["n", width])
    for _ in range(layers):
        weight = (rng.standard_normal((width, width)) / width**0.5).astype(np.float32)
        x = builder.add("Relu", builder.add("MatMul", x, builder.constant(weight)))
    builder.output(x)
    return builder.to_bytes()


@pytest.fixture
def installed() -> Iterator[HostPool]:
    pytest.importorskip("onnxruntime")
    pool = acl.ort.install(arenas=1)
    yield pool
    acl.ort.uninstall()


def session(options: Any = None) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(network(), options, providers=["CPUExecutionProvider"])


def test_session_results_equal_those_of_plain_onnx_runtime(installed: HostPool) -> None:
    ours, plain = session(acl.ort.session_options()), session()
    rng = np.random.default_rng(1)
    for rows in (1, 7, 1000, 33, 5000, 2):
        x = rng.standard_normal((rows, 128)).astype(np.float32)
        assert np.array_equal(ours.run(None, {"x": x})[0], plain.run(None, {"x": x})[0])
    assert acl.ort.stats().hits + acl.ort.stats().fits + acl.ort.stats().slow > 20
    assert installed.check() == 0


def test_results_keep_their_memory_and_sessions_give_theirs_back(installed: HostPool) -> None:
    before = acl.ort.stats().live_blocks
    ours = session(acl.ort.session_options())
    assert acl.ort.stats().live_blocks > before
    x = np.ones((1000, 128), np.float32)
    (first,) = ours.run(None, {"x": x})
    kept = first.copy()
    ours.run(None, {"x": x * 2})
    acl.ort.trim()
    assert np.array_equal(first, kept)
    del ours, first
    assert acl.ort.stats().live_blocks == before


def test_session_with_a_repeated_shape_allocates_nothing_new(installed: HostPool) -> None:
    ours = session(acl.ort.session_options())
    x = np.ones((3000, 128), np.float32)
    for _ in range(20):
        ours.run(None, {"x": x})
    before = acl.ort.stats()
    for _ in range(20):
        ours.run(None, {"x": x})
    after = acl.ort.stats()
    assert (after.slow, after.reserved) == (before.slow, before.reserved)


def test_a_session_over_the_limit_still_answers() -> None:
    pytest.importorskip("onnxruntime")
    acl.ort.install(limit="4MiB", arenas=1)
    try:
        ours, plain = session(acl.ort.session_options()), session()
        x = np.ones((20_000, 128), np.float32)
        assert np.array_equal(ours.run(None, {"x": x})[0], plain.run(None, {"x": x})[0])
        assert acl.ort.stats().overflows > 0
        assert acl.ort.stats().reserved <= 4 * MIB
    finally:
        acl.ort.uninstall()


def test_sessions_go_on_after_uninstall(installed: HostPool) -> None:
    ours = session(acl.ort.session_options())
    acl.ort.uninstall()
    other = session(acl.ort.session_options())  # the environment has no allocator, so ONNX Runtime uses its own
    before = installed.stats()
    x = np.ones((50, 128), np.float32)
    assert np.array_equal(ours.run(None, {"x": x})[0], other.run(None, {"x": x})[0])
    assert installed.stats()["hits"] + installed.stats()["fits"] > before["hits"] + before["fits"]


def test_a_second_install_is_refused(installed: HostPool) -> None:
    with pytest.raises(RuntimeError, match="installed already"):
        acl.ort.install()


@needs_onnxruntime
@pytest.mark.parametrize(("given", "error", "text"), [
    ({"pool": 5}, TypeError, r"pool must be an acl\.ort\.HostPool or None, not int"),
    ({"limit": "lots"}, ValueError, "limit must look like"),
    ({"pool": HostPool(), "limit": "1GiB"}, ValueError, "are options of a new pool"),
    ({"pool": HostPool(), "granule": "2MiB"}, ValueError, "are options of a new pool"),
    ({"pool": HostPool(), "arenas": 1}, ValueError, "are options of a new pool"),
])
def test_install_names_an_argument_that_it_cannot_use(given: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        acl.ort.install(**given)
    acl.ort.install()                           # the refused install left nothing behind
    acl.ort.uninstall()


@needs_onnxruntime
def test_unknown_onnx_runtime_options_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"options must be onnxruntime\.SessionOptions or None, not dict"):
        acl.ort.session_options({})


def test_onnx_runtime_has_no_pool_statistics_without_install() -> None:
    with pytest.raises(RuntimeError, match=r"acl\.ort\.install\(\) first"):
        acl.ort.stats()


def test_install_without_onnx_runtime_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install aclpool\[onnx\]"):
        acl.ort.install()


@needs_onnxruntime
def test_process_exit_with_live_sessions_and_results_is_silent() -> None:
    done = run_python(f"""
        import numpy as np, onnxruntime
        import acl.ort
        acl.ort.install()
        model = {network(8, 1)!r}
        session = onnxruntime.InferenceSession(model, acl.ort.session_options(), providers=["CPUExecutionProvider"])
        kept = session.run(None, {{"x": np.ones((9, 8), np.float32)}})
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- the C library ------------------------------------------------------------------------------


def library() -> Path:
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        pytest.skip("onnxruntime is not installed")
    return next((Path(spec.origin).parent / "capi").glob("libonnxruntime.so.*"))


def test_session_made_by_the_c_api_uses_the_pool() -> None:
    """The test calls CreateEnv, the options and CreateSessionFromArray by ctypes, as a C program would."""
    path = library()
    pool = HostPool(arenas=1)
    assert acl.ort.register(pool, path).count(".") == 2
    opened = ctypes.CDLL(str(path))
    opened.OrtGetApiBase.restype = ctypes.POINTER(ctypes.c_void_p)
    get_api = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32)(opened.OrtGetApiBase()[0])
    table = get_api(16)

    def call(place: int, *arguments: Any) -> None:
        status = ctypes.CFUNCTYPE(ctypes.c_void_p, *[type(one) for one in arguments])(table[place])(*arguments)
        assert status is None, place

    def made(place: int, *arguments: Any) -> ctypes.c_void_p:
        out = ctypes.c_void_p()
        call(place, *arguments, ctypes.c_void_p(ctypes.addressof(out)))
        return out

    env = made(3, ctypes.c_int(3), ctypes.c_char_p(b"test"))
    options = made(10)
    call(17, options)
    call(19, options)
    call(130, options, ctypes.c_char_p(b"session.use_env_allocators"), ctypes.c_char_p(b"1"))
    model = network()
    made(8, env, ctypes.c_char_p(model), ctypes.c_size_t(len(model)), options)
    assert pool.stats()["live_blocks"] > 0


def test_missing_or_wrong_onnx_runtime_library_is_reported() -> None:
    pool = HostPool()
    with pytest.raises(OSError, match="nowhere"):
        acl.ort.register(pool, "/nowhere/libonnxruntime.so")
    with pytest.raises(OSError, match="no library of ONNX Runtime"):
        acl.ort.register(pool, os.path.join(acl.sim.library_dir(), "libhccl.so"))
    with pytest.raises(TypeError, match="library must be a path, not int"):
        acl.ort.register(pool, 5)               # type: ignore[arg-type]


def test_forked_child_has_its_own_copy_of_the_host_memory() -> None:
    done = run_python("""
        import ctypes, os
        from acl.ort import HostPool
        pool = HostPool()
        addresses = [pool.alloc(size) for size in (100, 5000, 3 << 20, 40 << 20)]
        for address in addresses:
            ctypes.memset(address, 1, 100)
        ours, theirs = os.pipe()
        if os.fork() == 0:
            os.read(ours, 1)            # by now the parent has written
            kept = all(ctypes.string_at(address, 100) == bytes([1]) * 100 for address in addresses)
            for address in addresses:
                ctypes.memset(address, 7, 100)
            os._exit(not kept)
        for address in addresses:
            ctypes.memset(address, 2, 100)
        os.write(theirs, b"x")
        assert os.wait()[1] == 0, "the child saw what its parent wrote"
        assert all(ctypes.string_at(address, 100) == bytes([2]) * 100 for address in addresses)
        for address in addresses:
            pool.free(address)
        assert pool.check() == 0 and pool.trim() > 0
        if os.fork() == 0:              # once more, with nothing mapped
            os._exit(0)
        assert os.wait()[1] == 0
    """)
    assert done.returncode == 0, done.stderr


ADDRESSES = """
    import numpy, onnxruntime
    import acl
    from acl.tools.onnx_writer import Builder

    b = Builder()
    b.input("x", "float32", [None])
    b.output(b.add("Relu", "x"), "float32", [None])

    def turn():
        pool = acl.ort.install()
        session = onnxruntime.InferenceSession(
            b.to_bytes(), acl.ort.session_options(), providers=["CPUExecutionProvider"])
        session.run(None, {"x": numpy.ones(10, "f4")})
        acl.ort.uninstall()
        assert pool.stats()["reserved"] == pool.stats()["live_blocks"] * pool.granule
        return pool

    def mapped():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[0]) * 4096

    pool = turn()
    before = mapped()
    assert all(turn() is pool for _ in range(20))
    print(mapped() - before < 1 << 30, acl.ort.install(limit="1GiB") is pool)
"""


@needs_onnxruntime
def test_install_after_uninstall_takes_the_same_addresses() -> None:
    done = run_python(ADDRESSES)
    assert (done.stdout, done.stderr, done.returncode) == ("True False\n", "", 0)
