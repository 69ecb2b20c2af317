"""Virtual memory by hand: map, fill, copy to the host and unmap, map again at the same address."""

import acl

ACL_HBM_MEM_HUGE = 4
PROP = {"handleType": 0, "allocationType": 0, "memAttr": ACL_HBM_MEM_HUGE, "location": {"id": 0, "type": 1}}

acl.init()
acl.rt.set_device(0)
granule, ret = acl.rt.mem_get_allocation_granularity(PROP, 0)
size = 2 * granule
address, ret = acl.rt.reserve_mem_address(size, 0, 0, 1)
assert ret == 0, ret
handle, ret = acl.rt.malloc_physical(size, PROP, 0)
assert ret == 0, ret
assert acl.rt.map_mem(address, size, 0, handle, 0) == 0
assert acl.rt.memset(address, size, 9, size) == 0
saved, ret = acl.rt.malloc_host(size)
assert acl.rt.memcpy(saved, saved + 2 * size, address, size, 2) == 0
assert acl.rt.unmap_mem(address) == 0
assert acl.rt.free_physical(handle) == 0
print("asleep")
handle, ret = acl.rt.malloc_physical(size, PROP, 0)
assert acl.rt.map_mem(address, size, 0, handle, 0) == 0
assert acl.rt.memcpy(address, address + 2 * size, saved, size, 1) == 0
print("awake", set(acl.util.ptr_to_bytes(address, size)))
attributes, ret = acl.rt.pointer_get_attributes(address)
print(attributes["location"], ret)
assert acl.rt.unmap_mem(address) == 0
assert acl.rt.free_physical(handle) == 0
assert acl.rt.release_mem_address(address) == 0
assert acl.rt.free_host(saved) == 0
acl.rt.reset_device(0)
print(acl.finalize())
