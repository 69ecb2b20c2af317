"""Single operators: descriptions, buffers, attributes, execute_v2, a handle, a cast."""

import numpy as np

import acl

FLOAT, FLOAT16, INT32, ND = 0, 1, 3, 2
TYPES = {"float32": FLOAT, "float16": FLOAT16, "int32": INT32}


def check(ret, what="call"):
    assert ret == 0, f"{what}: {ret} {acl.get_recent_err_msg()}"


class Operand:
    def __init__(self, array):
        self.array = array
        self.desc = acl.create_tensor_desc(TYPES[str(array.dtype)], list(array.shape), ND)
        self.size = acl.get_tensor_desc_size(self.desc)
        self.device, ret = acl.rt.malloc(self.size, 2)
        check(ret, "malloc")
        raw = array.tobytes()
        check(acl.rt.memcpy(self.device, self.size, acl.util.bytes_to_ptr(raw), self.size, 1))
        self.buffer = acl.create_data_buffer(self.device, self.size)

    def read(self):
        raw = bytes(self.size)
        check(acl.rt.memcpy(acl.util.bytes_to_ptr(raw), self.size, self.device, self.size, 2))
        return np.frombuffer(raw, dtype=self.array.dtype).reshape(self.array.shape)

    def release(self):
        check(acl.destroy_data_buffer(self.buffer))
        check(acl.rt.free(self.device))
        acl.destroy_tensor_desc(self.desc)


check(acl.init())
check(acl.rt.set_device(0))
context, ret = acl.rt.create_context(0)
stream, ret = acl.rt.create_stream()
attr = acl.op.create_attr()
print("attributes", acl.op.set_attr_bool(attr, "keep", 1), acl.op.set_attr_int(attr, "axis", -1),
      acl.op.set_attr_float(attr, "alpha", 0.5), acl.op.set_attr_string(attr, "mode", "nearest"),
      acl.op.set_attr_list_int(attr, "axes", [0, 1]), acl.op.set_attr_list_float(attr, "scales", [1.0, 2.0]),
      acl.op.set_attr_list_string(attr, "names", ["a", "b"]),
      acl.op.set_attr_list_list_int(attr, "pads", [[1], [2, 3]]))
acl.op.destroy_attr(attr)
a = np.arange(128, dtype=np.int32).reshape(8, 16)
b = a[::-1].copy()
x, y, z = Operand(a), Operand(b), Operand(np.zeros_like(a))
attr = acl.op.create_attr()
check(acl.op.execute_v2("Add", [x.desc, y.desc], [x.buffer, y.buffer], [z.desc], [z.buffer], attr, stream), "Add")
check(acl.rt.synchronize_stream(stream))
print("Add", (z.read() == a + b).all())
handle, ret = acl.op.create_handle("Mul", [x.desc, y.desc], [z.desc], attr)
check(ret, "create_handle")
check(acl.op.execute_with_handle(handle, [x.buffer, y.buffer], [z.buffer], stream), "execute_with_handle")
check(acl.rt.synchronize_stream(stream))
print("Mul", (z.read() == a * b).all())
acl.op.destroy_handle(handle)
f, h = Operand(np.linspace(-4, 4, 64, dtype=np.float32)), Operand(np.zeros(64, dtype=np.float16))
check(acl.op.cast(f.desc, f.buffer, h.desc, h.buffer, 0, stream), "cast")
check(acl.rt.synchronize_stream(stream))
print("cast", (h.read() == f.array.astype(np.float16)).all())
ret = acl.op.execute_v2("Nonsense", [x.desc], [x.buffer], [z.desc], [z.buffer], attr, stream)
print("no such operator", ret != 0)
acl.op.destroy_attr(attr)
for operand in (x, y, z, f, h):
    operand.release()
print("half", acl.float16_to_float(acl.float_to_float16(1.5)))
acl.rt.destroy_stream(stream)
acl.rt.destroy_context(context)
acl.rt.reset_device(0)
print("finalize", acl.finalize())
