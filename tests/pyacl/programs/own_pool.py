"""A program's own memory pool on one huge malloc, with interior pointers; placeholders in datasets."""

import sys

import acl

GIB = 1 << 30
CAPACITY = int(sys.argv[1]) if len(sys.argv) > 1 else 26 * GIB


class MemoryPool:
    def __init__(self, size):
        acl.rt.set_device(0)
        self.memory, ret = acl.rt.malloc(size, 0)
        assert ret == 0, ret
        self.size = size
        self.used = 0

    def get(self, size):
        size = (size + 63) // 32 * 32
        assert self.used + size <= self.size
        place = self.memory + self.used
        self.used += size
        return place

    def release(self):
        return acl.rt.free(self.memory)


assert acl.init() == 0
pool = MemoryPool(CAPACITY)
pieces = [pool.get(n) for n in (1, 100, 4096, 1 << 20)]
for i, piece in enumerate(pieces):
    assert acl.rt.memset(piece, 1, 65 + i, 1) == 0
print(b"".join(acl.util.ptr_to_bytes(piece, 1) for piece in pieces))
last = pool.memory + CAPACITY - 16
assert acl.rt.memcpy(last, 16, acl.util.bytes_to_ptr(b"at the very end!"), 16, 1) == 0
print(acl.util.ptr_to_bytes(last, 16))
# destMax is an address, not a size: a mistake of real programs, which often ignore the result.
size = 16
ret = acl.rt.memcpy(pool.memory, pool.memory + 2 * size, acl.util.bytes_to_ptr(bytes(size)), size, 1)
print("nonsense dest_max", ret)
dataset = acl.mdl.create_dataset()
buffers = [acl.create_data_buffer(0, 1) for _ in range(3)]
for buffer in buffers:
    _, ret = acl.mdl.add_dataset_buffer(dataset, buffer)
    assert ret == 0
for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
    found = acl.mdl.get_dataset_buffer(dataset, i)
    assert acl.update_data_buffer(found, pieces[i], 100 + i) == 0
print([acl.get_data_buffer_size_v2(b) for b in buffers], [acl.get_data_buffer_addr(b) - pool.memory for b in buffers])
for buffer in buffers:
    assert acl.destroy_data_buffer(buffer) == 0
assert acl.mdl.destroy_dataset(dataset) == 0
print("free", pool.release(), "again", acl.rt.reset_device(0), acl.finalize())
