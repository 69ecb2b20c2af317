"""Converts configurations, which pyACL takes as dicts and lists, to C structs.

Such a C struct has a pointer to an array of attributes.  One `bytes` object holds the struct and
the array.  An empty configuration becomes None, which the callers pass as NULL.  Everything here
holds the GIL and calls no function of ACL.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from acl.pyacl._call cimport refuse
from acl.pyacl._layout cimport pack, pack_struct, room
from acl.bind.generated._libacl cimport (
    aclrtBinaryLoadOption, aclrtBinaryLoadOptions, aclrtBinaryLoadOptionType,
    aclrtLaunchKernelAttr, aclrtLaunchKernelAttrId, aclrtLaunchKernelCfg, aclrtMallocAttribute,
    aclrtMallocAttrType, aclrtMallocConfig, aclrtServerPid,
)

cdef const char *MALLOC_VALUE = b"moduleId@0H deviceId@0I vaFlag@0I rsv@0[8]B"
cdef const char *LOAD_VALUE = b"isLazyLoad@0I magic@0I cpuKernelMode@0i rsv@0[4]I"
cdef const char *LAUNCH_VALUE = (
    b"schemMode@0B localMemorySize@0I dynUBufSize@0I engineType@0i blockDimOffset@0I "
    b"isBlockTaskPrefetch@0B isDataDump@0B timeout@0H timeoutUs@0{timeoutLow@0I timeoutHigh@4I} "
    b"enableProfiling@0B rsv@0[4]I"
)


cdef int value_put(
    object value, const char *layout, void *out, size_t size, const char *what, int argument
) except -1:
    """Store the value of an attribute in a C union.

    An int is stored in the first bytes of the union.  A dict is stored by the names of the members.
    """
    cdef bytes packed
    if isinstance(value, dict):
        packed = pack_struct(value, layout, size, what, argument)
        memcpy(out, PyBytes_AS_STRING(packed), size)
        return 0
    packed = pack([value], c"k", what, argument)
    memcpy(out, PyBytes_AS_STRING(packed), 8 if size > 8 else size)
    return 0


cdef object entry(object item, str key, const char *what, int argument):
    """Return `item[key]`; raise if the attribute is not a dict or lacks the key."""
    if not isinstance(item, dict):
        raise refuse(what, argument, "list of dict", item)
    return item[key]


cdef bytes malloc_config(object given, const char *what, int argument):
    """Convert {'attrs': [{'attr': int, 'value': {'moduleId': int}}], 'numAttrs': int}; {} means
    NULL.
    """
    cdef aclrtMallocConfig *config
    cdef aclrtMallocAttribute *attrs
    cdef bytes made
    cdef int kind
    if not isinstance(given, dict):
        raise refuse(what, argument, "dict", given)
    if not given:
        return None
    items = given["attrs"]
    if not isinstance(items, list):
        raise refuse(what, argument, "dict whose 'attrs' is a list", items)
    if given["numAttrs"] != len(items):
        raise KeyError(f"numAttrs: expected {len(items)}, the length of 'attrs', "
                       f"got {given['numAttrs']!r}")
    made = room(sizeof(aclrtMallocConfig) + sizeof(aclrtMallocAttribute) * <size_t> len(items))
    config = <aclrtMallocConfig *> PyBytes_AS_STRING(made)
    attrs = <aclrtMallocAttribute *> (config + 1)
    config.attrs = attrs
    config.numAttrs = len(items)
    for i, item in enumerate(items):
        kind = entry(item, "attr", what, argument)
        attrs[<size_t> i].attr = <aclrtMallocAttrType> kind
        value_put(item["value"], MALLOC_VALUE, &attrs[<size_t> i].value, 8, what, argument)
    return made


cdef bytes launch_config(object given, const char *what, int argument):
    """Convert a list of {'id': int, 'value': int or dict}; [] means NULL."""
    cdef aclrtLaunchKernelCfg *config
    cdef aclrtLaunchKernelAttr *attrs
    cdef bytes made
    cdef int kind
    if not isinstance(given, list):
        raise refuse(what, argument, "list", given)
    if not given:
        return None
    made = room(sizeof(aclrtLaunchKernelCfg) + sizeof(aclrtLaunchKernelAttr) * <size_t> len(given))
    config = <aclrtLaunchKernelCfg *> PyBytes_AS_STRING(made)
    attrs = <aclrtLaunchKernelAttr *> (config + 1)
    config.attrs = attrs
    config.numAttrs = len(given)
    for i, item in enumerate(given):
        kind = entry(item, "id", what, argument)
        attrs[<size_t> i].id = <aclrtLaunchKernelAttrId> kind
        value_put(item["value"], LAUNCH_VALUE, &attrs[<size_t> i].value, 16, what, argument)
    return made


cdef bytes load_options(object given, const char *what, int argument):
    """Convert a list of {'type': int, 'value': int or dict}; [] means NULL.

    Raise ValueError if `given` is not a list.
    """
    cdef aclrtBinaryLoadOptions *config
    cdef aclrtBinaryLoadOption *options
    cdef bytes made
    cdef int kind
    if not isinstance(given, list):
        raise ValueError(str(refuse(what, argument, "list", given)))
    if not given:
        return None
    made = room(
        sizeof(aclrtBinaryLoadOptions) + sizeof(aclrtBinaryLoadOption) * <size_t> len(given))
    config = <aclrtBinaryLoadOptions *> PyBytes_AS_STRING(made)
    options = <aclrtBinaryLoadOption *> (config + 1)
    config.options = options
    config.numOpt = len(given)
    for i, item in enumerate(given):
        kind = entry(item, "type", what, argument)
        options[<size_t> i].type = <aclrtBinaryLoadOptionType> kind
        value_put(item["value"], LOAD_VALUE, &options[<size_t> i].value, 16, what, argument)
    return made


cdef tuple server_pids(object given, const char *what, int argument):
    """Convert a list of {'sdid': int, 'pid': [int, ...]}.

    Return the struct array and its length.
    """
    cdef aclrtServerPid *servers
    cdef int32_t *pids
    cdef bytes made
    if not isinstance(given, list):
        raise refuse(what, argument, "list", given)
    lists = [pack(entry(item, "pid", what, argument), c"i", what, argument) for item in given]
    made = room(sizeof(aclrtServerPid) * <size_t> len(given) + <size_t> sum(map(len, lists)))
    servers = <aclrtServerPid *> PyBytes_AS_STRING(made)
    pids = <int32_t *> (servers + len(given))
    for i, item in enumerate(given):
        servers[<size_t> i].sdid = item["sdid"]
        servers[<size_t> i].pid = pids
        servers[<size_t> i].num = len(lists[i]) // sizeof(int32_t)
        memcpy(pids, PyBytes_AS_STRING(<bytes> lists[i]), len(lists[i]))
        pids += servers[<size_t> i].num
    return made, len(given)
