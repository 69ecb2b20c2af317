"""The sizes in a model's description, and which parts of a user's description are used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acl
from acl.tools.onnx_writer import Builder


@pytest.fixture(autouse=True)
def device() -> None:
    assert acl.rt.set_device(0) == 0


def load(folder: Path, model: Builder, **metadata: str) -> int:
    path = folder / "model.om"
    path.write_bytes(model.to_bytes(metadata))
    number, ret = acl.mdl.load_from_file(str(path))
    assert ret == 0, acl.get_recent_err_msg()
    return number


def output_of(number: int) -> tuple[int, list[int]]:
    """Return the size and the dimensions of the first output."""
    desc = acl.mdl.create_desc()
    assert acl.mdl.get_desc(desc, number) == 0
    found = acl.mdl.get_output_size_by_index(desc, 0), acl.mdl.get_output_dims(desc, 0)[0]["dims"]
    assert acl.mdl.destroy_desc(desc) == 0
    return found


def flat(dims: list[Any], dtype: str = "float32") -> Builder:
    """Return a model that makes two rows of each row of x by shape arithmetic; its output's shape is not declared."""
    b = Builder()
    x = b.input("x", dtype, dims)
    rows = b.add("Gather", b.add("Shape", x), b.constant(np.array([0], np.int64)))
    doubled = b.add("Mul", rows, b.constant(np.array([2], np.int64)))
    target = b.add("Concat", doubled, b.constant(np.array([-1], np.int64)), axis=0)
    b.output(b.add("Reshape", b.add("Add", x, x), target), dtype)
    return b


@pytest.mark.parametrize(("metadata", "dims", "size"), [
    ({"dynamic_batch_size": "1,2,16,4"}, [None, 8], 16 * 8 * 4),
    ({"dynamic_dims": "1;3;8"}, [None, 8], 8 * 8 * 4),
    ({"dynamic_image_size": "4,4;6,2"}, [2, None, None], 2 * 16 * 4),
])
def test_the_size_of_a_geared_output_is_that_of_the_largest_gear(
    tmp_path: Path, metadata: dict[str, str], dims: list[Any], size: int
) -> None:
    number = load(tmp_path, flat(dims), **metadata)
    assert output_of(number)[0] == size
    assert acl.mdl.unload(number) == 0


SETTERS: dict[str, Callable[[int, int, int, list[int]], int]] = {
    "dynamic_batch_size": lambda number, data, index, gear: acl.mdl.set_dynamic_batch_size(number, data, index, *gear),
    "dynamic_image_size": lambda number, data, index, gear: acl.mdl.set_dynamic_hw_size(number, data, index, *gear),
    "dynamic_dims": lambda number, data, index, gear: acl.mdl.set_input_dynamic_dims(
        number, data, index, {"name": "", "dimCount": len(gear), "dims": gear}),
}


@pytest.mark.parametrize(("metadata", "dims", "largest", "gears"), [
    ({"dynamic_batch_size": "1,2,16,4"}, [None, 8], [32, 4], {(1,): [2, 4], (16,): [32, 4], (4,): [8, 4]}),
    ({"dynamic_dims": "1;3;8"}, [None, 8], [16, 4], {(1, 8): [2, 4], (8, 8): [16, 4], (3, 8): [6, 4]}),
    ({"dynamic_image_size": "6,2;4,4"}, [2, None, None], [4, 8], {(6, 2): [4, 6], (4, 4): [4, 8]}),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) and isinstance(next(iter(value)), str) else None)
def test_the_dimensions_of_a_geared_output_follow_the_gear(
    tmp_path: Path, metadata: dict[str, str], dims: list[Any], largest: list[int],
    gears: dict[tuple[int, ...], list[int]]
) -> None:
    number = load(tmp_path, flat(dims), **metadata)
    assert output_of(number)[1] == largest
    desc, data = acl.mdl.create_desc(), acl.mdl.create_dataset()
    assert acl.mdl.get_desc(desc, number) == 0
    buffers = [acl.create_data_buffer(0, 0) for _ in range(2)]
    for buffer in buffers:
        assert acl.mdl.add_dataset_buffer(data, buffer)[1] == 0

    def current() -> list[int]:
        told: list[int] = acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"]
        return told

    assert current() == largest, "before a gear was set"
    for gear, expected in gears.items():
        assert SETTERS[next(iter(metadata))](number, data, 1, list(gear)) == 0
        assert current() == expected
        assert output_of(number)[1] == largest
    for buffer in buffers:
        assert acl.destroy_data_buffer(buffer) == 0
    assert acl.mdl.destroy_dataset(data) == 0
    assert acl.mdl.destroy_desc(desc) == 0
    assert acl.mdl.unload(number) == 0


def test_output_dimensions_follow_a_gear_set_after_a_run(tmp_path: Path) -> None:
    number = load(tmp_path, flat([None, 8]), dynamic_batch_size="1,8")
    desc, data, results = acl.mdl.create_desc(), acl.mdl.create_dataset(), acl.mdl.create_dataset()
    assert acl.mdl.get_desc(desc, number) == 0
    memory = [acl.rt.malloc(512, 0)[0] for _ in range(3)]
    buffers = [acl.create_data_buffer(address, 512) for address in memory]
    for dataset, buffer in zip((data, data, results), buffers, strict=True):
        assert acl.mdl.add_dataset_buffer(dataset, buffer)[1] == 0
    assert acl.mdl.set_dynamic_batch_size(number, data, 1, 1) == 0
    assert acl.mdl.execute(number, data, results) == 0
    assert acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [2, 4]
    assert acl.mdl.set_dynamic_batch_size(number, data, 1, 8) == 0
    assert acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [16, 4]
    assert acl.mdl.execute(number, data, results) == 0
    assert acl.mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [16, 4]
    for buffer in buffers:
        assert acl.destroy_data_buffer(buffer) == 0
    for address in memory:
        assert acl.rt.free(address) == 0
    assert acl.mdl.destroy_dataset(data) == acl.mdl.destroy_dataset(results) == 0
    assert acl.mdl.destroy_desc(desc) == 0
    assert acl.mdl.unload(number) == 0


def test_description_of_a_geared_file_has_the_largest_gear(tmp_path: Path) -> None:
    path = tmp_path / "model.om"
    path.write_bytes(flat([None, 8]).to_bytes({"dynamic_batch_size": "2,4"}))
    desc = acl.mdl.create_desc()
    assert acl.mdl.get_desc_from_file(desc, str(path)) == 0
    assert acl.mdl.get_output_dims(desc, 0)[0]["dims"] == [8, 4]
    assert acl.mdl.destroy_desc(desc) == 0


def test_an_output_that_is_not_declared_is_inferred_from_known_inputs(tmp_path: Path) -> None:
    number = load(tmp_path, flat([3, 8]))
    assert output_of(number) == (3 * 8 * 4, [6, 4])
    assert acl.mdl.unload(number) == 0


def test_size_of_a_dynamic_output_is_0_without_gears(tmp_path: Path) -> None:
    number = load(tmp_path, flat([None, 8]))
    assert output_of(number)[0] == 0
    assert acl.mdl.unload(number) == 0


def test_output_size_that_depends_on_data_is_0(tmp_path: Path) -> None:
    b = Builder()
    x = b.input("x", "float32", [4])
    b.output(b.add("NonZero", x), "int64")
    number = load(tmp_path, b)
    assert output_of(number)[0] == 0
    assert acl.mdl.unload(number) == 0


def run(number: int, x: np.ndarray, descs: list[tuple[int, list[int], int]]) -> tuple[int, np.ndarray, list[int]]:
    """Set the input's description to each of `descs` in turn, then run the model.

    Each description is destroyed after it was set.  Return the run's status, the output, and the output's dimensions.
    """
    source, target = np.ascontiguousarray(x), np.zeros(x.size, x.dtype)
    device, _ = acl.rt.malloc(x.nbytes, 0)
    place, _ = acl.rt.malloc(x.nbytes, 0)
    assert acl.rt.memcpy(device, x.nbytes, source.ctypes.data, x.nbytes, 1) == 0
    inputs, outputs = acl.mdl.create_dataset(), acl.mdl.create_dataset()
    buffers = [acl.create_data_buffer(device, x.nbytes), acl.create_data_buffer(place, x.nbytes)]
    acl.mdl.add_dataset_buffer(inputs, buffers[0])
    acl.mdl.add_dataset_buffer(outputs, buffers[1])
    for dtype, dims, layout in descs:
        desc = acl.create_tensor_desc(dtype, dims, layout)
        assert acl.mdl.set_dataset_tensor_desc(inputs, desc, 0) == (inputs, 0)
        acl.destroy_tensor_desc(desc)
    ret = acl.mdl.execute(number, inputs, outputs)
    dims = []
    if ret == 0:
        found = acl.mdl.get_dataset_tensor_desc(outputs, 0)
        dims = [acl.get_tensor_desc_dim_v2(found, i)[0] for i in range(acl.get_tensor_desc_num_dims(found))]
    assert acl.rt.memcpy(target.ctypes.data, x.nbytes, place, x.nbytes, 2) == 0
    for handle in buffers:
        assert acl.destroy_data_buffer(handle) == 0
    assert acl.mdl.destroy_dataset(inputs) == acl.mdl.destroy_dataset(outputs) == 0
    assert acl.rt.free(device) == acl.rt.free(place) == 0
    return ret, target, dims


@pytest.mark.parametrize(("dtype", "layout"), [(9, 2), (-1, -1), (9, 9)])
def test_neither_a_descriptions_layout_nor_an_undefined_type_counts(tmp_path: Path, dtype: int, layout: int) -> None:
    number = load(tmp_path, flat([None, 4], "int64"))
    x = np.arange(12, dtype=np.int64).reshape(3, 4)
    ret, y, dims = run(number, x, [(dtype, [3, 4], layout)])
    assert ret == 0, acl.get_recent_err_msg()
    assert (y == x.ravel() * 2).all() and dims == [6, 2]
    assert acl.mdl.unload(number) == 0


def test_tensor_description_is_copied_and_the_last_one_counts(tmp_path: Path) -> None:
    number = load(tmp_path, flat([None, 4]))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert run(number, x, [(0, [1, 4], 2), (0, [2, 2, 2], 2), (0, [3, 4], 2)])[::2] == (0, [6, 2])
    assert run(number, x, [(0, [3, 5], 2)])[0] == 145021
    assert run(number, x, [])[0] == 145021
    assert acl.mdl.unload(number) == 0


def test_tensor_description_is_removed_by_null() -> None:
    dataset = acl.mdl.create_dataset()
    buffer = acl.create_data_buffer(64, 1)
    acl.mdl.add_dataset_buffer(dataset, buffer)
    desc = acl.create_tensor_desc(0, [1], 2)
    assert acl.mdl.set_dataset_tensor_desc(dataset, desc, 0)[1] == 0
    copy = acl.mdl.get_dataset_tensor_desc(dataset, 0)
    assert copy not in (0, desc)
    assert acl.mdl.set_dataset_tensor_desc(dataset, 0, 0)[1] == 0
    assert acl.mdl.get_dataset_tensor_desc(dataset, 0) == 0
    acl.destroy_tensor_desc(desc)
    assert acl.destroy_data_buffer(buffer) == 0
    assert acl.mdl.destroy_dataset(dataset) == 0
