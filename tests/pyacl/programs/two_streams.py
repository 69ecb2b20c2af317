"""Asynchronous copies on two streams; the context is destroyed before the streams, as careless programs do."""

import sys

import numpy as np

import acl

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 4 << 20


def check(ret, what="call"):
    assert ret == 0, f"{what}: {ret}"


check(acl.init())
check(acl.rt.set_device(0))
context, ret = acl.rt.create_context(0)
first, ret = acl.rt.create_stream()
second, ret = acl.rt.create_stream()
check(ret)
event, ret = acl.rt.create_event()
host, ret = acl.rt.malloc_host(SIZE)
back, ret = acl.rt.malloc_host(SIZE)
device, ret = acl.rt.malloc(SIZE, 0)
check(acl.rt.memset_async(host, SIZE, 7, SIZE, first))
check(acl.rt.memcpy_async(device, SIZE, host, SIZE, HOST_TO_DEVICE, first))
check(acl.rt.record_event(event, first))
check(acl.rt.stream_wait_event(second, event))
check(acl.rt.memcpy_async(back, SIZE, device, SIZE, DEVICE_TO_HOST, second))
check(acl.rt.synchronize_stream(second))
data = np.frombuffer(acl.util.ptr_to_bytes(back, SIZE), dtype=np.byte)
print("second stream read", np.unique(data), data.size)
# The copy kind is wrong for a host address: real programs do this, and the runtime decides by the addresses.
raw = bytes(SIZE)
check(acl.rt.memcpy(acl.util.bytes_to_ptr(raw), SIZE, host, SIZE, DEVICE_TO_HOST), "host source")
print("host source", set(raw))
status, ret = acl.rt.query_event_status(event)
print("event", status, ret)
check(acl.rt.destroy_event(event))
check(acl.rt.free(device))
check(acl.rt.free_host(host))
check(acl.rt.free_host(back))
check(acl.rt.destroy_context(context), "context with live streams")
check(acl.rt.reset_device(0))
check(acl.finalize())
print("run success!")
