"""The calls for dynamic shapes in CANN's documentation, with pyACL: their results, and which calls are refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.requests import small_model

import acl

FLOAT, INT32, ND = 0, 3, 2
SHAPE_INVALID, PARAM_INVALID, LENGTH_INVALID = 145021, 145000, 145012


class Run:
    """One execution, call by call, with an allocator registered through `acl.rt.allocator_*`."""

    def __init__(self, model: int, stream: int) -> None:
        self.model, self.stream = model, stream
        self.memory: list[int] = []
        self.asked: list[int] = []
        self.live: set[int] = set()
        desc = acl.rt.allocator_create_desc()
        for status in (
            acl.rt.allocator_set_obj_to_desc(desc, 1),
            acl.rt.allocator_set_alloc_func_to_desc(desc, self.on_alloc),
            acl.rt.allocator_set_free_func_to_desc(desc, self.on_free),
            acl.rt.allocator_set_alloc_advise_func_to_desc(desc, lambda a, size, addr: self.on_alloc(a, size)),
            acl.rt.allocator_set_get_addr_from_block_func_to_desc(desc, lambda block: block),
            acl.rt.allocator_register(stream, desc),
            acl.rt.allocator_destroy_desc(desc),
        ):
            assert status == 0

    def on_alloc(self, _: int, size: int) -> int:
        self.asked.append(size)
        block: int = self.malloc(size)
        self.live.add(block)
        return block

    def on_free(self, _: int, block: int) -> None:
        self.live.remove(block)

    def malloc(self, size: int) -> int:
        address, status = acl.rt.malloc(size, 0)
        assert status == 0
        self.memory.append(address)
        return address

    def dataset(self, address: int, size: int) -> int:
        made = acl.mdl.create_dataset()
        acl.mdl.add_dataset_buffer(made, acl.create_data_buffer(address, size))
        return made

    def __call__(self, shape: list[int], dtype: int = FLOAT, in_bytes: int = 4096, out_bytes: int = 4096):
        """Execute once; return the status, the output's dataset and the output's address."""
        source, target = self.malloc(4096), self.malloc(4096)
        ones = np.ones(1024, np.float32).tobytes()
        assert acl.rt.memcpy(source, 4096, acl.util.bytes_to_ptr(ones), 4096, 1) == 0
        inputs, outputs = self.dataset(source, in_bytes), self.dataset(target, out_bytes)
        desc = acl.create_tensor_desc(dtype, shape, ND)
        _, status = acl.mdl.set_dataset_tensor_desc(inputs, desc, 0)
        assert status == 0
        status = acl.mdl.execute_async(self.model, inputs, outputs, self.stream)
        assert acl.rt.synchronize_stream(self.stream) == 0
        return status, outputs, target

    def close(self) -> None:
        assert acl.rt.allocator_unregister(self.stream) == 0
        for address in self.memory:
            acl.rt.free(address)


@pytest.fixture
def run(stream: acl.Stream) -> Iterator[Run]:
    data = small_model().to_bytes()
    model, status = acl.mdl.load_from_mem(acl.util.bytes_to_ptr(data), len(data))
    assert status == 0
    made = Run(model, stream.handle)
    yield made
    assert acl.mdl.unload(model) == 0
    assert not made.live
    made.close()


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_model_outputs_have_the_right_shape_and_values(run, rows):
    status, outputs, target = run([rows, 8])
    assert status == 0
    desc = acl.mdl.get_dataset_tensor_desc(outputs, 0)
    assert acl.get_tensor_desc_num_dims(desc) == 2
    assert [acl.get_tensor_desc_dim_v2(desc, i)[0] for i in range(2)] == [rows, 8]
    assert acl.get_tensor_desc_size(desc) == 32 * rows
    got = np.frombuffer(acl.util.ptr_to_bytes(target, 32 * rows), np.float32)
    np.testing.assert_array_equal(got, np.full(8 * rows, 2))
    assert run.asked.count(32 * rows + 32) >= 2, "both tensors in between"


@pytest.mark.parametrize(
    ("shape", "options", "code"),
    [
        ([4, 9], {}, SHAPE_INVALID),
        ([4, 7], {}, SHAPE_INVALID),
        ([4], {}, SHAPE_INVALID),
        ([4, 8, 1], {}, SHAPE_INVALID),
        ([4, 8], {"dtype": INT32}, PARAM_INVALID),
        ([4, 8], {"in_bytes": 64}, LENGTH_INVALID),
    ],
)
def test_wrong_model_input_is_refused_by_its_name(run, shape, options, code):
    status, _, _ = run(shape, **options)
    assert status == code
    assert "input x" in acl.get_recent_err_msg()
    assert run([4, 8])[0] == 0, "the next one is served"


def test_an_output_buffer_that_is_too_small_is_refused_by_name(run):
    status, _, _ = run([4, 8], out_bytes=127)
    assert status == PARAM_INVALID
    assert "output y needs 128 bytes" in acl.get_recent_err_msg()
    assert run([4, 8], out_bytes=128)[0] == 0
