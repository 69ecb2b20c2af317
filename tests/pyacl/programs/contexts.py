"""Several contexts and streams, on threads, on two devices."""

import threading

import acl

assert acl.init() == 0
count, ret = acl.rt.get_device_count()
print("devices", count, ret)
results = {}


def work(device, index):
    context, ret = acl.rt.create_context(device)
    assert ret == 0
    current, ret = acl.rt.get_context()
    assert current == context
    streams = [acl.rt.create_stream()[0] for _ in range(3)]
    size = 1 << 16
    pointers = [acl.rt.malloc(size, 2)[0] for _ in streams]
    for i, (stream, pointer) in enumerate(zip(streams, pointers)):
        assert acl.rt.memset_async(pointer, size, 10 * index + i, size, stream) == 0
    for stream in streams:
        assert acl.rt.synchronize_stream(stream) == 0
    seen = [acl.util.ptr_to_bytes(p, 1)[0] for p in pointers]
    for stream, pointer in zip(streams, pointers):
        assert acl.rt.free(pointer) == 0
        assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.destroy_context(context) == 0
    results[index] = (device, acl.rt.get_device(device)[0] if acl.rt.set_device(device) == 0 else -1, seen)


threads = [threading.Thread(target=work, args=(i % count, i)) for i in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for index in sorted(results):
    print(index, results[index])

# Two contexts in one thread: the newest one is current, and a stream belongs to the context that was current then.
acl.rt.set_device(0)
one, _ = acl.rt.create_context(0)
stream, _ = acl.rt.create_stream()
two, _ = acl.rt.create_context(0)
pointer, _ = acl.rt.malloc(64, 0)
print("foreign stream", acl.rt.memset_async(pointer, 64, 0, 64, stream))
acl.rt.set_context(one)
print("own stream", acl.rt.memset_async(pointer, 64, 0, 64, stream), acl.rt.synchronize_stream(stream))
print(acl.rt.free(pointer), acl.rt.destroy_stream(stream), acl.rt.destroy_context(two), acl.rt.destroy_context(one))
for device in range(count):
    acl.rt.set_device(device)
    acl.rt.reset_device(device)
print("finalize", acl.finalize())
