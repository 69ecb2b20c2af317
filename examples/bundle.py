"""A bundle: two models in one file, loaded at once, and one at a time.

The simulator takes a tar archive of ONNX files as a bundle (`tar cf both.om prefill.onnx decode.onnx`);
a device takes an .om file with several graphs. The calls are the same.
"""

import os
import tarfile
import tempfile
from pathlib import Path

import numpy as np

os.environ.setdefault("ACL_BACKEND", "sim")

import acl
from acl.samples import Builder


def check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"{status}: {acl.get_recent_err_msg()}")


def scaled(factor: int) -> bytes:
    """Return a model that multiplies four numbers by a factor."""
    b = Builder()
    b.add("Mul", b.input("x", "float32", [4]), b.constant(np.full(4, factor, np.float32)), outputs=["y"])
    b.output("y")
    return b.to_bytes()


def run(model: int, x: np.ndarray) -> np.ndarray:
    """Run a model that has one input and one output, and return its output for `x`."""
    datasets, memory = [acl.mdl.create_dataset() for _ in range(2)], []
    for dataset in datasets:
        address, status = acl.rt.malloc(x.nbytes, 0)
        check(status)
        memory.append(address)
        acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(address, x.nbytes))
    check(acl.rt.memcpy(memory[0], x.nbytes, x.ctypes.data, x.nbytes, 1))
    check(acl.mdl.execute(model, *datasets))
    y = np.empty_like(x)
    check(acl.rt.memcpy(y.ctypes.data, y.nbytes, memory[1], y.nbytes, 2))
    for dataset, address in zip(datasets, memory, strict=True):
        check(acl.destroy_data_buffer(acl.mdl.get_dataset_buffer(dataset, 0)))
        check(acl.mdl.destroy_dataset(dataset))
        check(acl.rt.free(address))
    return y


def bundle_of(folder: str, factors: tuple[int, ...]) -> str:
    path = Path(folder) / "both.om"
    with tarfile.open(path, "w") as tar:
        for factor in factors:
            part = Path(folder) / f"times_{factor}.onnx"
            part.write_bytes(scaled(factor))
            tar.add(part, part.name)
    return str(path)


check(acl.init())
check(acl.rt.set_device(0))
x = np.arange(4, dtype=np.float32)
with tempfile.TemporaryDirectory() as folder:
    path = bundle_of(folder, (2, 5))

    bundle, status = acl.mdl.bundle_load_from_file(path)
    check(status)
    count, status = acl.mdl.bundle_get_model_num(bundle)
    check(status)
    for index in range(count):
        model, status = acl.mdl.bundle_get_model_id(bundle, index)
        check(status)
        print(f"model {index}: {x} -> {run(model, x)}")
        assert np.array_equal(run(model, x), x * (2, 5)[index])
    check(acl.mdl.bundle_unload(bundle))

    info = acl.mdl.bundle_create_query_info()
    check(acl.mdl.bundle_query_info_from_file(path, info))
    work, weight, status = acl.mdl.bundle_get_size(info, 1)
    check(status)
    check(acl.mdl.bundle_destroy_query_info(info))
    bundle, status = acl.mdl.bundle_init_from_file(path, 0, 0)
    check(status)
    model, status = acl.mdl.bundle_load_model(bundle, 1)
    check(status)
    print(f"model 1 alone, with {weight} bytes of weights: {x} -> {run(model, x)}")
    assert np.array_equal(run(model, x), 5 * x)
    check(acl.mdl.bundle_unload_model(bundle, model))
    check(acl.mdl.bundle_unload(bundle))
check(acl.rt.reset_device(0))
check(acl.finalize())
