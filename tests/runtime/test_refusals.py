"""Small numbers are refused as handles, before the runtime gets them.

Also errors of a library without some functions, of a chip without graphs, and of a process without enough addresses.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.child import run_child, run_python

import acl

TAKERS: dict[str, Callable[[int], object]] = {
    "a stream": acl.Stream.from_handle,
    "an event": acl.Event.from_handle,
    "memory": lambda number: acl.Buffer.from_address(number, 16),
    "a pool's stream": lambda number: acl.Pool(0).register(number),
    "a consumer's stream": lambda number: acl.Buffer(16).__dlpack__(stream=number),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("number", [1, 2, 4095, -3, 1 << 64])
def test_small_number_that_cannot_be_an_address_is_refused_as_a_handle(taker: str, number: int) -> None:
    # The real runtime uses a handle as a pointer without a check: with stream=1, the process crashed.
    acl.Device(0).use()
    with pytest.raises(ValueError, match=rf"must be .*not {number}$"):
        TAKERS[taker](number)


@pytest.mark.parametrize("taker", TAKERS)
def test_bool_is_refused_as_a_handle(taker: str) -> None:
    acl.Device(0).use()
    with pytest.raises(TypeError, match="not bool"):
        TAKERS[taker](True)


# ---- a library that lacks functions -------------------------------------------------------------

STUB = """
    #include <stddef.h>
    #include <stdlib.h>
    #include <string.h>
    static int context;
    int aclInit(const char *path) { (void)path; return 0; }
    int aclrtSetDevice(int device) { return device; }
    int aclrtGetDevice(int *device) { *device = 0; return 0; }
    int aclrtSetCurrentContext(void *one) { (void)one; return 0; }
    int aclrtGetCurrentContext(void **one) { *one = &context; return 0; }
    int aclrtMallocAlign32(void **at, size_t size, int policy) { (void)policy; *at = malloc(size); return 0; }
    int aclrtMalloc(void **at, size_t size, int policy) { (void)policy; *at = malloc(size); return 0; }
    int aclrtFree(void *at) { free(at); return 0; }
    int aclrtMemcpy(void *to, size_t most, const void *from, size_t size, int kind)
    { (void)most; (void)kind; memcpy(to, from, size); return 0; }
    int aclrtSynchronizeStreamWithTimeout(void *stream, int ms) { (void)stream; (void)ms; return 0; }
    int aclrtStreamQuery(void *stream, int *state) { (void)stream; *state = 0; return 0; }
    void *aclCreateDataBuffer(void *at, size_t size) { (void)at; (void)size; return malloc(1); }
    int aclDestroyDataBuffer(void *one) { free(one); return 0; }
    void *aclCreateTensorDesc(int type, int count, const long *dims, int format)
    { (void)type; (void)count; (void)dims; (void)format; return malloc(1); }
    void aclDestroyTensorDesc(void *one) { free(one); }
"""


def test_error_of_op_names_the_function_that_the_library_lacks(tmp_path: Path) -> None:
    source, library = tmp_path / "stub.c", tmp_path / "libascendcl.so"
    source.write_text(STUB)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = run_python(
        """
        import acl, numpy
        try:
            acl.Op("Relu")(numpy.ones(3, "f4"))
        except acl.NotSupportedError as error:
            print(error)
        """,
        ACL_BACKEND="cann", ACL_LIBRARY=str(library),
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert f"({library}) has no function aclop" in done.stdout


def operator_functions() -> str:
    from acl.bind.generated import _libacl

    return ",".join(name for name in _libacl.functions() if name.startswith("aclop"))


def test_doctor_notes_missing_operators_on_a_healthy_machine() -> None:
    done = run_child("-m", "aclpool", "doctor", ACL_WITHOUT=operator_functions())
    assert done.returncode == 0, done.stdout
    assert "has no function aclopCreateAttr" in done.stdout
    assert done.stdout.rstrip().endswith("healthy")


# ---- a chip without graphs ----------------------------------------------------------------------

WITHOUT_GRAPHS = """
    import acl
    with acl.sim.fault("aclmdlRICaptureGetInfo", every=1, code=207000):
        acl.Device(0).use()
        stream = acl.Stream(0)
        with acl.Pool(0) as pool:
            pool.register(stream)
            acl.sim.reset_counters()
            for _ in range(5):
                blocks = [pool.alloc("3MiB", stream) for _ in range(9)]
                blocks.clear()
                pool.trim()
            print(acl.sim.counters()["aclmdlRICaptureGetInfo"], sum(pool.stats().driver_failures.values()))
            print(acl.rt.peek_at_last_error(0))
            assert pool.check() == 0
            pool.unregister(stream)
"""


def test_chip_without_graphs_is_queried_once_and_leaves_no_error() -> None:
    done = run_python(WITHOUT_GRAPHS)
    assert (done.stdout, done.stderr, done.returncode) == ("1 0\n0\n", "", 0)


# ---- error paths --------------------------------------------------------------------------------

ERROR_PATHS = """
    import gc, sys
    import numpy
    import acl.sim
    from acl.tools.onnx_writer import Builder

    class Told(list):
        def find_spec(self, name, path=None, target=None):
            self.append(name)

    b = Builder()
    b.input("x", "float32", [None])
    b.output(b.add("Relu", b.add("Relu", "x")), "float32", [None])
    stream, pool = acl.Stream(0), acl.Pool(0, "4MiB")
    pool.register(stream)
    model, op = acl.Model(b.to_bytes()), acl.Op("Relu")
    model(numpy.ones(4, "f4"), stream=stream)
    op(numpy.ones(4, "f4"), stream=stream)
    pinned = acl.PinnedPool(limit="1MiB")
    pinned.alloc(16).close()

    def after_a_fault(function, code, call):
        with acl.sim.fault(function, every=1, code=code):
            call()

    acl.sim.fault("aclrtFree", nth=1).remove()
    big, small = numpy.ones(2 << 20, "f4"), numpy.ones(4, "f4")
    told = Told()
    sys.meta_path.insert(0, told)
    for call in (
        lambda: pool.alloc("64MiB", stream),
        lambda: model(big, stream=stream),
        lambda: op(big, stream=stream),
        lambda: pinned.alloc("64MiB"),
        lambda: after_a_fault("aclmdlExecuteAsync", 207001, lambda: model(small, stream=stream)),
        lambda: after_a_fault("aclopCompileAndExecuteV2", 500000, lambda: op(small, stream=stream)),
        lambda: after_a_fault("aclrtMemcpyAsync", 500000, lambda: model(small, stream=stream)),
        lambda: after_a_fault("aclrtSynchronizeStreamWithTimeout", 507010, stream.synchronize),
    ):
        try:
            call()
        except (acl.AclError, MemoryError):
            pass
        else:
            print("no error")
    told_now = list(told)
    sys.meta_path.remove(told)
    print(told_now)
"""


def test_error_paths_import_no_further_modules() -> None:
    done = run_python(ERROR_PATHS)
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


# ---- ulimit -v ----------------------------------------------------------------------------------

@pytest.mark.release_only        # sanitizers need more addresses
def test_refusal_under_an_address_space_limit_names_the_limit() -> None:
    done = run_python("""
        import resource
        import acl.sim
        pinned = acl.PinnedPool()
        pinned.alloc(16).close()
        limit = 1 << 45
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            with acl.sim.fault("aclrtMallocHost", every=1):
                pinned.alloc("1GiB")
        except acl.OutOfMemoryError as error:
            print(f"{limit} bytes of addresses (ulimit -v)" in str(error), error)
    """)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.startswith("True"), done.stdout
