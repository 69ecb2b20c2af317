"""Copies of all kinds with sizes from the command line, and the contents of the device's memory."""

import argparse

import numpy as np

import acl

ACL_HBM_MEM = 1
HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 0, 1, 2, 3


def check(what, ret):
    if ret != 0:
        raise RuntimeError(f"{what} failed, ret = {ret}")


def look(what, pointer, size, kind):
    """Copy into the buffer of an immutable bytes object, as many programs do, and print it."""
    data = np.ones(size, dtype=np.byte)
    if "bytes_to_ptr" in dir(acl.util):
        raw = data.tobytes()
        address = acl.util.bytes_to_ptr(raw)
    else:
        raw, address = None, acl.util.numpy_to_ptr(data)
    check("acl.rt.memcpy", acl.rt.memcpy(address, size, pointer, size, kind))
    if raw is not None:
        data = np.frombuffer(raw, dtype=data.dtype)
    print(what, np.unique(data), len(data))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=2)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--memory_size", type=int, default=1 << 20)
    args = parser.parse_args()
    size = args.memory_size
    check("acl.init", acl.init())
    check("acl.rt.set_device", acl.rt.set_device(args.device))
    context, ret = acl.rt.create_context(args.device)
    check("acl.rt.create_context", ret)
    before, _, ret = acl.rt.get_mem_info(ACL_HBM_MEM)
    for cycle in range(args.cycles):
        host, ret = acl.rt.malloc_host(size)
        check("acl.rt.malloc_host", ret)
        device, ret = acl.rt.malloc(size, 0)
        check("acl.rt.malloc", ret)
        other, ret = acl.rt.malloc(size, 2)
        check("acl.rt.malloc", ret)
        check("acl.rt.memset", acl.rt.memset(host, size, 7 + cycle, size))
        look("host", host, size, HOST_TO_HOST)
        check("to device", acl.rt.memcpy(device, size, host, size, HOST_TO_DEVICE))
        check("on device", acl.rt.memcpy(other, size, device, size, DEVICE_TO_DEVICE))
        look("device", other, size, DEVICE_TO_HOST)
        check("interior", acl.rt.memset(other + size // 2, size - size // 2, 1, size - size // 2))
        look("half", other, size, DEVICE_TO_HOST)
        now, _, ret = acl.rt.get_mem_info(ACL_HBM_MEM)
        print("taken at least", before - now >= 2 * size)
        check("acl.rt.free", acl.rt.free(device))
        check("acl.rt.free", acl.rt.free(other))
        check("acl.rt.free_host", acl.rt.free_host(host))
    check("acl.rt.destroy_context", acl.rt.destroy_context(context))
    check("acl.rt.reset_device", acl.rt.reset_device(args.device))
    check("acl.finalize", acl.finalize())
    print("run success")


if __name__ == "__main__":
    main()
