"""A model with any input shapes, not only listed ones: tensor descriptions set them, the runtime allocates outputs."""

import sys

import numpy as np

import acl

FLOAT, ND = 0, 2
weight = np.arange(12, dtype=np.float32).reshape(4, 3)


def check(ret, what="call"):
    assert ret == 0, f"{what}: {ret} {acl.get_recent_err_msg()}"


check(acl.init())
check(acl.rt.set_device(0))
stream, ret = acl.rt.create_stream()
model, ret = acl.mdl.load_from_file(sys.argv[1])
check(ret, "load")
desc = acl.mdl.create_desc()
check(acl.mdl.get_desc(desc, model))
print("sizes", acl.mdl.get_input_size_by_index(desc, 0), acl.mdl.get_output_size_by_index(desc, 0))
for rows in (1, 7, 300, 2, 301):
    x = (np.arange(4 * rows, dtype=np.float32) - 5).reshape(rows, 4)
    device, ret = acl.rt.malloc(x.nbytes, 0)
    check(ret)
    raw = x.tobytes()
    check(acl.rt.memcpy(device, x.nbytes, acl.util.bytes_to_ptr(raw), x.nbytes, 1))
    inputs, outputs = acl.mdl.create_dataset(), acl.mdl.create_dataset()
    source = acl.create_data_buffer(device, x.nbytes)
    # A synchronous run allocates an empty output, which this program frees; a queued run must be given memory.
    queued = rows % 2 == 1
    mine = acl.rt.malloc(12 * rows, 0)[0] if queued else 0
    target = acl.create_data_buffer(mine, 12 * rows if queued else 0)
    acl.mdl.add_dataset_buffer(inputs, source)
    acl.mdl.add_dataset_buffer(outputs, target)
    # Only the dimensions count, and the description is copied: programs rely on both.
    shape = acl.create_tensor_desc(FLOAT if rows < 100 else -1, list(x.shape), ND if rows < 100 else -1)
    dataset, ret = acl.mdl.set_dataset_tensor_desc(inputs, shape, 0)
    check(ret, "set_dataset_tensor_desc")
    acl.destroy_tensor_desc(shape)
    if queued:
        check(acl.mdl.execute_async(model, inputs, outputs, stream), "execute_async")
        check(acl.rt.synchronize_stream(stream))
    else:
        check(acl.mdl.execute(model, inputs, outputs), "execute")
    found = acl.mdl.get_dataset_tensor_desc(outputs, 0)
    dims = [acl.get_tensor_desc_dim_v2(found, i)[0] for i in range(acl.get_tensor_desc_num_dims(found))]
    buffer = acl.mdl.get_dataset_buffer(outputs, 0)
    address, size = acl.get_data_buffer_addr(buffer), acl.get_data_buffer_size_v2(buffer)
    count = int(np.prod(dims)) * 4
    y = np.frombuffer(acl.util.ptr_to_bytes(address, count), dtype=np.float32).reshape(dims)
    print(rows, dims, mine in (0, address), size >= count, np.allclose(y, np.maximum(x @ weight, 0)))
    for handle in (source, target):
        check(acl.destroy_data_buffer(handle))
    check(acl.mdl.destroy_dataset(inputs))
    check(acl.mdl.destroy_dataset(outputs))
    check(acl.rt.free(device))
    check(acl.rt.free(address))
check(acl.mdl.unload(model))
check(acl.mdl.destroy_desc(desc))
check(acl.rt.destroy_stream(stream))
check(acl.rt.reset_device(0))
print("finalize", acl.finalize())
