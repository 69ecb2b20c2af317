"""Wrong or odd arguments that real programs pass, and that must work as they do with CANN's module."""

import acl

print("init", acl.init(), "again", acl.init() in (0, 100002))
print("set", acl.rt.set_device(0))
print("extra", acl.rt.get_device(0), acl.rt.synchronize_device(0))
method = {"in": acl.mdl.get_input_size_by_index, "out": acl.mdl.get_output_size_by_index}
print("stored", callable(method["in"]))
names = [n for n in ("bytes_to_ptr", "ptr_to_bytes", "numpy_to_ptr", "vector_to_ptr") if n in dir(acl.util)]
print("probing", names, hasattr(acl, "const"), hasattr(acl.rt, "MEMCPY_HOST_TO_DEVICE"))
print("root", "get_soc_name" in dir(acl), "create_data_buffer" in dir(acl), "mdl" in dir(acl))
pointer, ret = acl.rt.malloc(64, 0)
source = acl.util.bytes_to_ptr(b"x" * 64)
print("all of one call", acl.rt.memcpy(pointer, 64, source, 64, True))
print("device to device by the wrong kind", acl.rt.memcpy(pointer, 32, pointer + 32, 32, 1))
print("read on the host", acl.util.ptr_to_bytes(pointer, 4))
print("free", acl.rt.free(pointer), "none", acl.rt.free(0))
try:
    acl.rt.free(None)
except TypeError as error:
    print("TypeError", error)
try:
    acl.create_tensor_desc(0, (1, 2), 2)
except TypeError as error:
    print("TypeError", error)
print("no model", acl.mdl.load_from_file("nothing.om")[1] != 0)
print("bad stream", acl.rt.synchronize_stream(12345) != 0, acl.rt.destroy_stream(0) != 0)
stream, ret = acl.rt.create_stream()
print("stream", acl.rt.destroy_stream(stream), "twice", acl.rt.destroy_stream(stream) != 0)
print("message", isinstance(acl.get_recent_err_msg(), str), acl.get_recent_err_msg())
print("negative", acl.rt.malloc(-1, 0)[0], acl.rt.malloc(-1, 0)[1] != 0)
print("reset", acl.rt.reset_device(0), acl.finalize(), "again", acl.finalize() != 0)
