"""Bundles: tar archives of ONNX files, by the C interface and by pyACL's functions."""

from __future__ import annotations

import ctypes
import io
import subprocess
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.models import Call

import acl
from acl.tools.onnx_writer import Builder

pytestmark = pytest.mark.usefixtures("device")

X = np.arange(6, dtype=np.float32)
NAMES = ("add.onnx", "multiply.onnx", "negate.onnx")
UNKNOWN_BUNDLE, UNKNOWN_MODEL, BAD_FILE, BAD_ARGUMENT = 148053, 145003, 100013, 100000


def one_node(kind: str, constant: float | None = None) -> bytes:
    b = Builder()
    more = [] if constant is None else [b.constant(np.full(3, constant, np.float32))]
    b.add(kind, b.input("x", "float32", ["n", 3]), *more, outputs=["y"])
    b.output("y")
    return b.to_bytes()


MODELS = (one_node("Add", 10), one_node("Mul", 3), one_node("Neg"))
EXPECTED = (X + 10, X * 3, -X)


def archive(*members: tuple[str, bytes | None], form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar archive of the members; a member without data (None) is a folder."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, data in members:
            about = tarfile.TarInfo(name)
            about.mtime = 1.5
            if data is None:
                about.type = tarfile.DIRTYPE
            else:
                about.size = len(data)
            tar.addfile(about, None if data is None else io.BytesIO(data))
    return file.getvalue()


BUNDLE = archive(*zip(NAMES, MODELS, strict=True))


def open_memory(data: bytes, function: str = "aclmdlBundleLoadFromMem") -> tuple[int, int]:
    """Load a bundle from memory; return the status and the bundle's number."""
    number = out(ctypes.c_uint32)
    more = (None, 0) if "Init" in function else ()
    return getattr(api, function)(data, len(data), *more, ctypes.byref(number)), number.value


def number_of(function: str, *arguments: Any, kind: Any = ctypes.c_uint32) -> int:
    value = out(kind)
    assert getattr(api, function)(*arguments, ctypes.byref(value)) == 0, acl.get_recent_err_msg()
    found: int = value.value
    return found


def run(model: int) -> np.ndarray[Any, Any]:
    call = Call([X.reshape(2, 3)], 1)
    assert api.aclmdlExecute(model, call.input, call.output) == 0
    result = call.result(0).reshape(-1)
    call.close()
    return result


def memory_in_use() -> int:
    free, total = out(ctypes.c_size_t), out(ctypes.c_size_t)
    assert api.aclrtGetMemInfo(1, ctypes.byref(free), ctypes.byref(total)) == 0
    used: int = total.value - free.value
    return used


def test_a_bundle_made_by_tar_is_run_by_pyacl(tmp_path: Path) -> None:
    for name, data in zip(NAMES, MODELS, strict=True):
        (tmp_path / name).write_bytes(data)
    subprocess.run(["tar", "cf", "all.om", *NAMES], cwd=tmp_path, check=True)
    bundle, status = acl.mdl.bundle_load_from_file(str(tmp_path / "all.om"))
    assert status == 0
    assert acl.mdl.bundle_get_model_num(bundle) == (3, 0)
    for index, expected in enumerate(EXPECTED):
        model, status = acl.mdl.bundle_get_model_id(bundle, index)
        assert status == 0
        np.testing.assert_array_equal(run(model), expected)
    assert acl.mdl.bundle_unload(bundle) == 0
    assert acl.mdl.bundle_unload(bundle) == UNKNOWN_BUNDLE


def test_unloading_a_bundle_frees_all_its_memory() -> None:
    before = memory_in_use()
    status, bundle = open_memory(BUNDLE)
    assert status == 0
    models = [number_of("aclmdlBundleGetModelId", bundle, index) for index in range(3)]
    assert bundle not in models
    assert memory_in_use() > before
    assert api.aclmdlUnload(models[0]) == BAD_ARGUMENT, "the bundle unloads it"
    assert api.aclmdlUnload(bundle) == UNKNOWN_MODEL, "a bundle is no model"
    np.testing.assert_array_equal(run(models[0]), EXPECTED[0])
    assert api.aclmdlBundleUnload(bundle) == 0
    assert all(api.aclmdlUnload(model) == UNKNOWN_MODEL for model in models)
    assert memory_in_use() == before


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_of_all_formats_of_tar_are_read(form: int) -> None:
    members = [("models", None), *[(f"models/{'long' * 20}{name}", data)
                                   for name, data in zip(NAMES, MODELS, strict=True)]]
    status, bundle = open_memory(archive(*members, form=form))
    assert status == 0
    assert number_of("aclmdlBundleGetModelNum", bundle, kind=ctypes.c_size_t) == 3
    np.testing.assert_array_equal(run(number_of("aclmdlBundleGetModelId", bundle, 2)), EXPECTED[2])
    assert api.aclmdlBundleUnload(bundle) == 0


def test_models_of_a_bundle_are_loaded_one_by_one() -> None:
    data = bytearray(BUNDLE)
    status, bundle = open_memory(bytes(data), "aclmdlBundleInitFromMem")
    assert status == 0
    data[:] = bytes(len(data))
    assert api.aclmdlBundleGetModelId(bundle, 1, ctypes.byref(out(ctypes.c_uint32))) == BAD_ARGUMENT, "not loaded"
    first, second = (number_of("aclmdlBundleLoadModel", bundle, 1) for _ in range(2))
    assert first != second
    np.testing.assert_array_equal(run(second), EXPECTED[1])
    assert api.aclmdlBundleUnloadModel(bundle, second) == 0
    assert api.aclmdlBundleUnloadModel(bundle, second) == UNKNOWN_MODEL
    np.testing.assert_array_equal(run(first), EXPECTED[1])
    assert number_of("aclmdlBundleGetModelId", bundle, 1) == first
    assert api.aclmdlBundleUnload(bundle) == 0
    assert api.aclmdlUnload(first) == UNKNOWN_MODEL


def test_weights_of_a_bundle_may_lie_in_memory_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "all.om").write_bytes(BUNDLE)
    info = acl.mdl.bundle_create_query_info()
    assert acl.mdl.bundle_query_info_from_file(str(tmp_path / "all.om"), info) == 0
    assert acl.mdl.bundle_get_query_model_num(info) == (3, 0)
    assert acl.mdl.bundle_get_var_weight_size(info) == (0, 0)
    work, weight, status = acl.mdl.bundle_get_size(info, 0)
    assert status == 0
    assert work > 0
    assert weight > 0
    assert acl.mdl.bundle_get_size(info, 3)[-1] == BAD_ARGUMENT
    bundle, status = acl.mdl.bundle_init_from_file(str(tmp_path / "all.om"), 0, 0)
    assert status == 0
    memory, status = acl.rt.malloc(weight, 0)
    assert status == 0
    before = memory_in_use()
    model, status = acl.mdl.bundle_load_model_with_mem(bundle, 0, 0, 0, memory, weight)
    assert status == 0
    assert memory_in_use() == before
    np.testing.assert_array_equal(run(model), EXPECTED[0])
    config = acl.mdl.create_config_handle()
    again, status = acl.mdl.bundle_load_model_with_config(bundle, 0, config)
    assert status == 0
    np.testing.assert_array_equal(run(again), EXPECTED[0])
    assert acl.mdl.bundle_unload(bundle) == 0
    assert acl.mdl.destroy_config_handle(config) == 0
    assert acl.mdl.bundle_destroy_query_info(info) == 0
    assert acl.rt.free(memory) == 0


def linked() -> bytes:
    about = tarfile.TarInfo("a.onnx")
    about.type, about.linkname = tarfile.SYMTYPE, "b.onnx"
    return about.tobuf() + bytes(1024)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (MODELS[0], "expected a tar archive"),
        (BUNDLE[:1600], "cut short"),
        (BUNDLE[:1100], "no header"),
        (BUNDLE[:100], "no header"),
        (bytes(1024), "no file"),
        (archive(("folder", None)), "no file"),
        (linked(), "a link"),
        (archive(("a.onnx", MODELS[0]), ("notes.txt", b"not a model")), "notes.txt"),
    ],
    ids=["one model", "cut", "cut at a header", "short", "empty", "a folder", "a link", "text"],
)
def test_file_that_is_not_a_bundle_is_refused(data: bytes, word: str) -> None:
    before = memory_in_use()
    status, _ = open_memory(data)
    assert status == BAD_FILE
    assert word in acl.get_recent_err_msg()
    assert memory_in_use() == before


def test_damaged_bundles_never_crash() -> None:
    rng = np.random.default_rng(4)
    for _ in range(300):
        data = bytearray(BUNDLE)
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(0, 256)
        status, bundle = open_memory(bytes(data))
        if status == 0:
            assert api.aclmdlBundleUnload(bundle) == 0


def test_wrong_arguments_of_bundle_functions_are_refused() -> None:
    status, bundle = open_memory(BUNDLE)
    number, size = out(ctypes.c_uint32), out(ctypes.c_size_t)
    assert status == 0
    assert api.aclmdlBundleLoadFromFile(None, ctypes.byref(number)) == BAD_ARGUMENT
    assert api.aclmdlBundleLoadFromFile(b"/no/such/file", ctypes.byref(number)) == 145002
    assert api.aclmdlBundleLoadFromMem(BUNDLE, 0, ctypes.byref(number)) == BAD_ARGUMENT
    assert api.aclmdlBundleGetModelId(bundle, 3, ctypes.byref(number)) == BAD_ARGUMENT
    assert api.aclmdlBundleGetModelNum(bundle, None) == BAD_ARGUMENT
    assert api.aclmdlBundleGetModelNum(bundle + 1000, ctypes.byref(size)) == UNKNOWN_BUNDLE
    assert api.aclmdlBundleLoadModel(bundle, 0, ctypes.byref(number)) == BAD_ARGUMENT, "all are loaded"
    assert api.aclmdlBundleUnload(bundle) == 0


def test_bundle_may_be_unloaded_while_threads_load_its_models() -> None:
    before = memory_in_use()
    context = out(ctypes.c_void_p)
    assert api.aclrtGetCurrentContext(ctypes.byref(context)) == 0
    for _ in range(20):
        status, bundle = open_memory(BUNDLE, "aclmdlBundleInitFromMem")
        assert status == 0
        found: set[int] = set()

        def load(bundle: int = bundle, found: set[int] = found) -> None:
            api.aclrtSetCurrentContext(context)
            for _ in range(20):
                found.add(api.aclmdlBundleLoadModel(bundle, 0, ctypes.byref(out(ctypes.c_uint32))))

        threads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert api.aclmdlBundleUnload(bundle) == 0
        for thread in threads:
            thread.join()
        assert found <= {0, UNKNOWN_BUNDLE}
    assert memory_in_use() == before
