"""The pool's table of functions: extension modules in C, C++ and Cython, built outside the tree."""

import ctypes
import gc
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy
import pytest
from consumers.test_consumers import HERE, compiled, cython_code, cython_module
from support.child import run_python

import acl
from acl.pool._registry import pool_of
from acl.tools.demo.models import encoder

STRICT = ["-Wextra", "-Werror"]


@pytest.fixture(scope="session")
def c_module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return compiled_in("c_module", tmp_path_factory, ["gcc", "-std=c11", *STRICT], "module.c")


def compiled_in(
    name: str, factory: pytest.TempPathFactory, compiler: list[str], source: str
) -> ModuleType:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    folder = factory.mktemp(name)
    for file in (HERE / "consumers/c").iterdir():
        shutil.copy(file, folder)
    worker = ["gcc", "-std=c99", "-fPIC", *STRICT, "-I", acl.include_dir(), "-c", "worker.c"]
    subprocess.run(worker, cwd=folder, check=True)
    return compiled(name, folder, compiler, [source, "worker.o", "-pthread"])


@pytest.fixture
def pool(no_leaks: None) -> Iterator[acl.Pool]:
    with acl.Pool(0, limit="256MiB") as made:
        yield made
    del made
    gc.collect()


def test_threads_started_by_c_can_use_the_c_api(c_module: ModuleType, pool: acl.Pool) -> None:
    with acl.Stream(0) as one, acl.Stream(0) as two:
        assert c_module.threads(pool, (one.handle, two.handle)) == 0
        assert pool.stats().allocated == 0
        assert pool.check() == 0
        assert sum(stream.refused for stream in pool.stats().streams) == 2


def test_block_allocated_in_c_becomes_a_buffer(c_module: ModuleType, pool: acl.Pool) -> None:
    with acl.Stream(0) as stream:
        buffer = c_module.buffer(pool, stream.handle, 1000)
        assert (buffer.size, buffer.device, buffer.stream.handle) == (1000, 0, stream.handle)
        acl.copy(buffer, bytes(range(250)) * 4)
        assert acl.to_bytes(buffer) == bytes(range(250)) * 4
        pool.record_stream(buffer, stream)
        assert pool.stats().allocated >= 1056
        del buffer
        assert pool.stats().allocated == 0


def test_buffer_made_in_c_keeps_its_pool_alive(c_module: ModuleType, no_leaks: None) -> None:
    pool = acl.Pool(0)
    buffer = c_module.buffer(pool, 0, 64)
    pool.close()
    del pool
    acl.copy(buffer, b"x" * 64)
    buffer.close()


def test_c_api_statistics_equal_the_python_statistics(c_module: ModuleType, pool: acl.Pool) -> None:
    held = [pool.alloc(1000) for _ in range(3)]
    stats = pool.stats()
    filled, streams, allocated, reserved, allocations, frees, failures = c_module.stats(pool)
    assert (streams, allocated, reserved) == (1, stats.allocated, stats.reserved)
    assert (allocations - frees, failures) == (len(held), 0)
    assert filled == 112


def test_statistics_struct_of_an_older_caller_is_filled_only_to_its_size(c_module: ModuleType, pool: acl.Pool) -> None:
    pool.alloc(1000)
    filled, streams, allocated, *rest = c_module.stats(pool, 16)
    assert (filled, streams, allocated) == (16, 1, 0)
    assert rest == [0xEEEEEEEEEEEEEEEE] * 4


def test_function_table_gives_version_size_and_device(c_module: ModuleType, pool: acl.Pool) -> None:
    pool.alloc("3MiB").close()
    reserved = pool.stats().reserved
    version, size, device, padded, refused, trimmed, broken = c_module.facts(pool)
    assert (version >> 16, device, refused, broken) == (1, 0, True, 0)
    assert size == 8 + 14 * ctypes.sizeof(ctypes.c_void_p)
    assert padded == 1056
    assert trimmed == reserved > 0


def test_null_arguments_of_the_c_api_are_refused(c_module: ModuleType, pool: acl.Pool) -> None:
    with pytest.raises(ValueError, match="arena and block must not be NULL"):
        c_module.nothing(pool)
    assert pool.stats().allocated == 0


def test_failed_allocation_in_c_returns_null_and_is_counted(c_module: ModuleType, pool: acl.Pool) -> None:
    with pytest.raises(MemoryError):
        c_module.buffer(pool, 0, 1 << 40)
    assert c_module.stats(pool)[4:] == (0, 0, 1)


def test_stream_can_be_registered_and_unregistered_in_c(c_module: ModuleType, pool: acl.Pool) -> None:
    with acl.Stream(0) as stream:
        assert c_module.serve(pool, stream.handle, True) == 0
        assert pool.streams == (stream.handle,)
        found = acl.allocator_of(stream)
        pool.register(stream)
        assert acl.allocator_of(stream)[:5] == found[:5]
        assert c_module.serve(pool, stream.handle, False) == 0
        assert acl.allocator_of(stream) is None
        assert c_module.serve(pool, 0, True) != 0


def test_stream_registered_in_c_is_known_in_python(c_module: ModuleType, pool: acl.Pool, sim: ModuleType) -> None:
    model = acl.Model(encoder(1).to_bytes())
    inputs = {"tokens": numpy.ones((1, 9, 64), "float32"), "mask": numpy.ones((1, 9), "float32")}
    with acl.Stream(0) as stream, acl.Stream(0) as other:
        assert c_module.serve(pool, stream.handle, True) == 0
        assert pool.serves(stream) and pool.serves(stream.handle) and not pool.serves(other)
        assert acl.allocator_of(stream).pool is pool
        (output,) = model.run_async(inputs, stream)
        assert acl.memory_ledger(0).tags()["outputs"] == pool.stats().allocated > 0
        output.close()
        pool.limit = pool.stats().reserved
        large = {"tokens": numpy.ones((8, 400, 64), "float32"), "mask": numpy.ones((8, 400), "float32")}
        with pytest.raises(acl.OutOfMemoryError, match="limit"):
            model(large["tokens"], large["mask"], stream=stream)
        model.close()
        with acl.Pool(0) as second:
            second.register(stream, replace=True)
            assert second.serves(stream) and not pool.serves(stream)
            second.unregister(stream)
        assert acl.allocator_of(stream) is None


def test_pool_registered_in_c_replaces_the_one_registered_in_python(c_module: ModuleType, pool: acl.Pool) -> None:
    with acl.Stream(0) as stream, acl.Pool(0) as first:
        first.register(stream)
        assert c_module.serve(pool, stream.handle, True) == 0
        assert acl.allocator_of(stream).pool is pool
        assert pool.serves(stream) and not first.serves(stream) and first.streams == ()
        model = acl.Model(encoder(1).to_bytes())
        model(numpy.ones((1, 9, 64), "float32"), numpy.ones((1, 9), "float32"), stream=stream)
        assert pool.stats().allocations > 0 and first.stats().allocations == 0
        model.close()
        first.unregister(stream)
        assert acl.allocator_of(stream).pool is pool
        assert c_module.serve(pool, stream.handle, False) == 0


def test_registration_made_in_c_outlives_a_dropped_pool(c_module: ModuleType) -> None:
    assert c_module.__file__
    code = f"""
        import sys
        sys.path.insert(0, {str(Path(c_module.__file__).parent)!r})
        import {c_module.__name__} as c_module
        import acl, acl.sim
        from support.core import Door

        pool = acl.Pool(0)
        with acl.Stream(0) as stream:
            assert c_module.serve(pool, stream.handle, True) == 0
            door = Door(stream)
            door.free(door.alloc(1 << 20))
            del pool
            assert door.alloc(512) == 0
        assert acl.sim.physical_bytes() == 0
    """
    done = run_python(code)  # in a new process, because the pool is never destroyed
    assert (done.returncode, done.stderr) == (0, "")


def test_pool_of_a_stream_can_be_queried_while_pools_are_made_and_closed(no_leaks: None) -> None:
    """Each run of a model asks for the pool of its stream, on any thread; here the stream has no pool."""
    faults: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                assert pool_of(1 << 40) is None
        except BaseException as error:
            faults.append(error)

    kept, interval = [acl.Pool(0) for _ in range(50)], sys.getswitchinterval()
    threads = [threading.Thread(target=ask) for _ in range(2)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for _ in range(10):
            several = [acl.Pool(0) for _ in range(20)]
            del several
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert faults == []
    del kept


@pytest.mark.parametrize("debug", [True, "sample:3"])
def test_stream_registered_in_c_with_a_guarded_pool_is_guarded(
    c_module: ModuleType, no_leaks: None, debug: bool | str
) -> None:
    with acl.Pool(0, debug=debug) as pool, acl.Stream(0) as stream:
        assert c_module.serve(pool, stream.handle, True) == 0
        found = acl.allocator_of(stream)
        pool.register(stream)
        assert acl.allocator_of(stream)[:5] == found[:5]
        assert c_module.serve(pool, stream.handle, False) == 0
    with acl.Pool(0) as pool, acl.Stream(0) as stream:
        assert c_module.serve(pool, stream.handle, True) == 0
        assert acl.allocator_of(stream).alloc != found.alloc
        assert c_module.serve(pool, stream.handle, False) == 0


def test_c_api_refuses_an_object_that_is_not_a_pool(c_module: ModuleType, pool: acl.Pool) -> None:
    with pytest.raises(TypeError, match=r"must be an acl\.Pool, not int"):
        c_module.stats(3)
    other = acl.Pool(0)
    other.close()
    with pytest.raises(ValueError, match="closed"):
        c_module.stats(other)


IMPORTER = """
    #include <aclpool.h>
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "%(name)s", NULL, -1, NULL, NULL, NULL, NULL, NULL};
    PyMODINIT_FUNC PyInit_%(name)s(void)
    {
        const AclPoolApi *api = aclpool_import();
        PyObject *module = api == NULL ? NULL : PyModule_Create(&definition);
        if (module != NULL) {
            PyModule_AddIntConstant(module, "known", (long)sizeof(AclPoolApi));
            PyModule_AddIntConstant(module, "given", (long)api->size);
            PyModule_AddIntConstant(module, "trims", api->trim != NULL);
        }
        return module;
    }
"""
LAST = "    uint32_t (*check)(AclPool *pool);\n"


def built_against(name: str, folder: Path, functions: str, minor: int) -> ModuleType:
    """Return a module compiled with a changed header.

    In the header's table `functions` replaces the last function, and the table's version is 1.`minor`.
    """
    shutil.copytree(acl.include_dir(), folder / "include")
    header = folder / "include/aclpool.h"
    text = header.read_text()
    assert text.count(LAST) == 1 and text.count("#define ACLPOOL_ABI_MINOR 0") == 1
    header.write_text(text.replace(LAST, functions).replace("ABI_MINOR 0", f"ABI_MINOR {minor}"))
    (folder / "importer.c").write_text(IMPORTER % {"name": name})
    compiler = ["gcc", "-std=c11", *STRICT, "-I", str(folder / "include")]
    return compiled(name, folder, compiler, ["importer.c"])


def test_module_built_against_an_older_table_works(tmp_path: Path) -> None:
    """The module's table lacks the last function; all other functions are at unchanged offsets."""
    module = built_against("older_table", tmp_path, "", 0)
    assert module.known == module.given - ctypes.sizeof(ctypes.c_void_p)
    assert module.trims == 1


def test_module_built_against_a_newer_table_is_refused_by_name(tmp_path: Path) -> None:
    size = 8 + 14 * ctypes.sizeof(ctypes.c_void_p)
    longer = size + ctypes.sizeof(ctypes.c_void_p)
    said = f"table has version 1.0 and {size} bytes; this module was built for 1.1 and {longer}"
    with pytest.raises(ImportError, match=re.escape(said)):
        built_against("newer_table", tmp_path, LAST + "    int (*later)(AclPool *pool);\n", 1)


def test_c_api_of_another_major_version_is_refused(c_module: ModuleType) -> None:
    assert c_module.refused()


def test_blocks_in_cpp_are_freed_by_their_destructors(
    tmp_path_factory: pytest.TempPathFactory, pool: acl.Pool
) -> None:
    compiler = ["g++", "-std=c++14", *STRICT, "-Wno-missing-field-initializers"]
    module = compiled_in("cpp_module", tmp_path_factory, compiler, "module.cpp")
    with acl.Stream(0) as one, acl.Stream(0) as two:
        assert module.blocks(pool, one.handle, two.handle)
        assert module.threads(pool, one.handle) == 0
        assert pool.stats().allocated == 0
        assert pool.check() == 0


def test_cython_code_can_allocate_without_the_gil(tmp_path: Path, pool: acl.Pool) -> None:
    module = cython_module("pooled", tmp_path)
    with acl.Stream(0) as stream:
        assert module.through_the_table(pool, stream, 1 << 20, 100) == (1, 0)
        buffer = module.through_the_class(pool, stream, 100)
        assert (type(buffer), buffer.size) == (acl.Buffer, 100)
        del buffer


# ---- what docs/c-api.md shows ------------------------------------------------------------------

FRAME = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
%s
static void *launched;
static void launch(void *address, aclrtStream stream) { launched = stream == NULL ? NULL : address; }
static PyObject *run(PyObject *self, PyObject *args)
{
    PyObject *object;
    unsigned long long handle;
    size_t bytes = 1000;
    (void)self;
    if (!PyArg_ParseTuple(args, "OK", &object, &handle))
        return NULL;
    aclrtStream stream = (aclrtStream)(uintptr_t)handle;
%s
    return PyLong_FromVoidPtr(launched);
}
static PyMethodDef methods[] = {{"run", run, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "shown", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_shown(void)
{
    api = aclpool_import();
    return api == NULL ? NULL : PyModule_Create(&module);
}
"""


def shown(language: str) -> str:
    """Return the page's code in a language."""
    text = (HERE.parent / "docs/c-api.md").read_text()
    (code,) = re.findall(rf"```{language}\n(.*?)```", text, re.S)
    return code


@pytest.mark.parametrize("compiler", [["gcc", "-std=c11"], ["g++", "-std=c++14"]], ids=["c", "cpp"])
def test_c_code_of_the_document_runs(compiler: list[str], tmp_path: Path, pool: acl.Pool) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    top, rest = re.split(r"\n\n(?=AclPool)", shown("c"), maxsplit=1)
    source = "shown.cpp" if compiler[0] == "g++" else "shown.c"
    (tmp_path / source).write_text(FRAME % (top, rest))
    module = compiled("shown", tmp_path, [*compiler, *STRICT], [source])
    with acl.Stream(0) as stream:
        assert module.run(pool, stream.handle) != 0
        assert (pool.stats().allocated, pool.stats().allocated_peak) == (0, 1536)


def test_cython_code_of_the_document_runs(tmp_path: Path, pool: acl.Pool) -> None:
    module = cython_code("shown_too", shown("cython"), tmp_path)
    with acl.Stream(0) as stream:
        buffer = module.scratch(pool, stream)
        assert (type(buffer), buffer.size, buffer.stream) == (acl.Buffer, 1 << 20, stream)
        del buffer
