"""A test of each device: does a frame that is mapped at two addresses have the same bytes at both?

Aliases need this: on a device that shows other bytes they would corrupt data.  So the first pool of
each device that may make aliases tests the device with a new frame.
"""

from libc.string cimport memcmp, memset

from acl.core._driver cimport prop_fill
from acl.bind.generated._libacl cimport (
    ACL_HBM_MEM_HUGE, ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_HOST_TO_DEVICE, ACL_SUCCESS,
    aclrtDrvMemHandle, aclrtFreePhysical, aclrtMallocPhysical, aclrtMapMem,
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
    STUCK               # the driver refused to unmap or free the frame or the addresses
    SAME                # both addresses show the same bytes
    OTHER               # the second address shows other bytes

cdef dict answers = {}  # by device number: False if the device gave the Answer OTHER


cdef Answer read_back(char *written, char *read, char value) noexcept nogil:
    """Write bytes to the address `written`; return SAME if they are read at `read`, else OTHER.

    UNKNOWN: a copy failed.
    """
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
    """Map a frame at `first` and behind it; return if both mappings show the same bytes.

    If a mapping cannot be removed, return STUCK.
    """
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
    """Test the current device with a new frame, and return the Answer; the frame is freed again."""
    cdef aclrtPhysicalMemProp prop
    cdef aclrtDrvMemHandle handle = NULL
    cdef void *addresses = NULL
    cdef Answer answer = UNKNOWN
    prop_fill(&prop, device, ACL_HBM_MEM_HUGE)
    if aclrtReserveMemAddress(&addresses, 2 * FRAME_BYTES, 0, NULL, 1) != ACL_SUCCESS:
        return UNKNOWN
    if aclrtMallocPhysical(&handle, FRAME_BYTES, &prop, 0) == ACL_SUCCESS:
        answer = with_two_mappings(<char *> addresses, handle)
        if answer == STUCK or aclrtFreePhysical(handle) != ACL_SUCCESS:
            return STUCK
    return answer if aclrtReleaseMemAddress(addresses) == ACL_SUCCESS else STUCK


cdef bint aliases_work(int device) except -1:
    """Return False if a test of the current device, whose number is `device`, gave OTHER.

    The first call for a device makes the test, and logs a warning if it gives OTHER.  If the test
    gives UNKNOWN, the next call makes it again.
    """
    cdef Answer answer
    if device not in answers and libacl_has(b"aclrtMapMem"):
        with nogil:
            answer = tried(device)
        if answer == UNKNOWN:
            return True         # if the driver refuses a second mapping, the core makes no aliases
        answers[device] = answer != OTHER       # no second test after STUCK: it would lose a frame
        if answer == OTHER:
            warning_log(
                "pool", "device %d: memory mapped at two addresses shows different bytes; pools "
                "there use no aliases, as with views=False", device)
    return answers.get(device, True)
