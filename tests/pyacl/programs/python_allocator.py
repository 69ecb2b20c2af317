"""An allocator written in Python serves a dynamic-shape model through acl.rt.allocator_*."""

import sys

import numpy as np

import acl

calls = {"alloc": 0, "free": 0, "address": 0}
live = {}
given_back = []


def on_alloc(allocator, size):
    calls["alloc"] += 1
    pointer, ret = acl.rt.malloc(size, 2)
    live[pointer] = size
    return pointer if ret == 0 else 0


def on_free(allocator, block):
    calls["free"] += 1
    del live[block]
    given_back.append(block)  # its last kernel may still be queued


def on_address(block):
    calls["address"] += 1
    return block


assert acl.init() == 0
assert acl.rt.set_device(0) == 0
stream, ret = acl.rt.create_stream()
desc = acl.rt.allocator_create_desc()
print(acl.rt.allocator_set_obj_to_desc(desc, 1),
      acl.rt.allocator_set_alloc_func_to_desc(desc, on_alloc),
      acl.rt.allocator_set_free_func_to_desc(desc, on_free),
      acl.rt.allocator_set_get_addr_from_block_func_to_desc(desc, on_address),
      acl.rt.allocator_register(stream, desc), acl.rt.allocator_destroy_desc(desc))
model, ret = acl.mdl.load_from_file(sys.argv[1])
weight = np.arange(12, dtype=np.float32).reshape(4, 3)
for rows in (3, 50, 8):
    x = np.ones((rows, 4), dtype=np.float32)
    raw = x.tobytes()
    device, ret = acl.rt.malloc(x.nbytes, 0)
    place, ret = acl.rt.malloc(12 * rows, 0)
    acl.rt.memcpy(device, x.nbytes, acl.util.bytes_to_ptr(raw), x.nbytes, 1)
    inputs, outputs = acl.mdl.create_dataset(), acl.mdl.create_dataset()
    acl.mdl.add_dataset_buffer(inputs, acl.create_data_buffer(device, x.nbytes))
    acl.mdl.add_dataset_buffer(outputs, acl.create_data_buffer(place, 12 * rows))
    acl.mdl.set_dataset_tensor_desc(inputs, acl.create_tensor_desc(0, [rows, 4], 2), 0)
    before = calls["alloc"]
    assert acl.mdl.execute_async(model, inputs, outputs, stream) == 0, acl.get_recent_err_msg()
    assert acl.rt.synchronize_stream(stream) == 0
    while given_back:
        assert acl.rt.free(given_back.pop()) == 0
    y = np.frombuffer(acl.util.ptr_to_bytes(place, 12 * rows), dtype=np.float32).reshape(rows, 3)
    print(rows, np.allclose(y, np.maximum(x @ weight, 0)), "asked", calls["alloc"] > before)
assert acl.mdl.unload(model) == 0
assert acl.rt.synchronize_device() == 0
assert acl.rt.destroy_stream(stream) == 0
print("unregister", acl.rt.allocator_unregister(stream), "balanced", calls["alloc"] == calls["free"], "live", live)
acl.rt.reset_device(0)
print("finalize", acl.finalize())
