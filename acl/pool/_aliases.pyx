"""Whether a device shows one frame of memory at two addresses with the same bytes.

Aliases rest on this, and a pool whose device does otherwise would corrupt data.  So the first pool
of each device that may make aliases tries it with a frame of its own.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memset

from acl.bind.generated._libacl cimport (
    ACL_HBM_MEM_HUGE, ACL_MEM_ALLOCATION_TYPE_PINNED, ACL_MEM_HANDLE_TYPE_NONE,
    ACL_MEM_LOCATION_TYPE_DEVICE, ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_SUCCESS, aclrtDrvMemHandle, aclrtFreePhysical, aclrtMallocPhysical, aclrtMapMem,
    aclrtMemcpy, aclrtPhysicalMemProp, aclrtReleaseMemAddress, aclrtReserveMemAddress,
    aclrtUnmapMem, libacl_has,
)

from acl.bind._log import warning as warning_log

__all__: list = []

cdef enum:
    FRAME_BYTES = 2 << 20
    PROBE_BYTES = 64

cdef enum Answer:
    UNKNOWN             # a call failed, for instance because the device is full
    STUCK               # the driver refused to take the frame or the addresses back
    SAME
    OTHER

cdef dict answers = {}  # by device: True if aliases work there; devices not asked yet are not in it


cdef Answer read_back(char *written, char *read, char value) noexcept nogil:
    """Write bytes of a value to one address, and return whether they are read at another."""
    cdef char sent[PROBE_BYTES]
    cdef char found[PROBE_BYTES]
    memset(sent, value, PROBE_BYTES)
    memset(found, ~value, PROBE_BYTES)
    if (aclrtMemcpy(written, PROBE_BYTES, sent, PROBE_BYTES, ACL_MEMCPY_HOST_TO_DEVICE)
            != ACL_SUCCESS
            or aclrtMemcpy(found, PROBE_BYTES, read, PROBE_BYTES, ACL_MEMCPY_DEVICE_TO_HOST)
            != ACL_SUCCESS):
        return UNKNOWN
    return SAME if memcmp(sent, found, PROBE_BYTES) == 0 else OTHER


cdef Answer with_two_mappings(char *first, aclrtDrvMemHandle handle) noexcept nogil:
    """Map a frame twice, from address `first` on, and return whether both show the same bytes."""
    cdef char *second = first + FRAME_BYTES
    cdef Answer answer = UNKNOWN
    if aclrtMapMem(first, FRAME_BYTES, 0, handle, 0) != ACL_SUCCESS:
        return UNKNOWN
    if aclrtMapMem(second, FRAME_BYTES, 0, handle, 0) == ACL_SUCCESS:
        answer = read_back(first, second, 0x5A)
        if answer == SAME:
            answer = read_back(second, first, 0x33)
        if aclrtUnmapMem(second) != ACL_SUCCESS:
            return STUCK
    return answer if aclrtUnmapMem(first) == ACL_SUCCESS else STUCK


cdef Answer tried(int device) noexcept nogil:
    """Return what the current device does with a new frame, which is freed again."""
    cdef aclrtPhysicalMemProp prop
    cdef aclrtDrvMemHandle handle = NULL
    cdef void *addresses = NULL
    cdef Answer answer = UNKNOWN
    memset(&prop, 0, sizeof(prop))
    prop.handleType = ACL_MEM_HANDLE_TYPE_NONE
    prop.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED
    prop.memAttr = ACL_HBM_MEM_HUGE
    prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = <uint32_t> device                # safe cast: never negative
    if aclrtReserveMemAddress(&addresses, 2 * FRAME_BYTES, 0, NULL, 1) != ACL_SUCCESS:
        return UNKNOWN
    if aclrtMallocPhysical(&handle, FRAME_BYTES, &prop, 0) == ACL_SUCCESS:
        answer = with_two_mappings(<char *> addresses, handle)
        if answer == STUCK or aclrtFreePhysical(handle) != ACL_SUCCESS:
            return STUCK
    return answer if aclrtReleaseMemAddress(addresses) == ACL_SUCCESS else STUCK


cdef bint aliases_work(int device) except -1:
    """Return False if the current device, whose number is `device`, was seen to show other bytes.

    The first call for a device asks it, and logs a warning if it does; so does each later call
    until one gets an answer.
    """
    cdef Answer answer
    if device not in answers and libacl_has(b"aclrtMapMem"):
        with nogil:
            answer = tried(device)
        if answer == UNKNOWN:
            return True         # the core goes without aliases where the driver refuses them
        answers[device] = answer != OTHER       # if STUCK, a second try would lose a frame more
        if answer == OTHER:
            warning_log(
                "pool", "device %d: memory mapped at two addresses shows different bytes; pools "
                "there use no aliases, as with views=False", device)
    return answers.get(device, True)
