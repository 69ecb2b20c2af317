"""The full callback path: thread, subscribe, launch, process, unsubscribe, stop."""

import acl

g_exit = False
done = []


def process_callback(args_list):
    context, timeout = args_list
    acl.rt.set_context(context)
    while not g_exit:
        acl.rt.process_report(timeout)


def on_result(user_data):
    index, pointer, size = user_data
    done.append((index, set(acl.util.ptr_to_bytes(pointer, size))))


assert acl.init() == 0
assert acl.rt.set_device(0) == 0
context, ret = acl.rt.create_context(0)
stream, ret = acl.rt.create_stream()
thread, ret = acl.util.start_thread(process_callback, [context, 50])
assert ret == 0
assert acl.rt.subscribe_report(thread, stream) == 0
size = 4096
device, ret = acl.rt.malloc(size, 0)
hosts = []
for i in range(8):
    host, ret = acl.rt.malloc_host(size)
    hosts.append(host)
    assert acl.rt.memset_async(device, size, i, size, stream) == 0
    assert acl.rt.memcpy_async(host, size, device, size, 2, stream) == 0
    assert acl.rt.launch_callback(on_result, [i, host, size], 1, stream) == 0
assert acl.rt.synchronize_stream(stream) == 0
assert acl.rt.unsubscribe_report(thread, stream) == 0
g_exit = True
assert acl.util.stop_thread(thread) == 0
print(done)
for host in hosts:
    acl.rt.free_host(host)
acl.rt.free(device)
acl.rt.destroy_stream(stream)
acl.rt.destroy_context(context)
acl.rt.reset_device(0)
print("finalize", acl.finalize())
