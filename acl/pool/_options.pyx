"""The options of a pool: reading and checking them; and facts about the device's memory.

`options_fill` raises for an invalid option, and names it, before anything is made.  Sizes are
numbers or texts such as ``"8GiB"``.  No function here keeps state.
"""

from libc.string cimport memset, strncmp

import os
import re
from collections import namedtuple

from acl.core._driver cimport prop_fill
from acl.core.types cimport MAX_SIZE_BITS, VIEWS_ALWAYS, VIEWS_NEVER
from acl.bind.generated._libacl cimport (
    ACL_DDR_MEM, ACL_HBM_MEM, ACL_HBM_MEM_HUGE, ACL_HBM_MEM_HUGE1G, ACL_HBM_MEM_NORMAL,
    ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, ACL_SUCCESS, aclError, aclrtGetMemInfo, aclrtGetSocName,
    aclrtMemGetAllocationGranularity, aclrtPhysicalMemProp, libacl_has,
)
from acl.pool._aliases cimport aliases_work
from acl.runtime._stream cimport Stream

from acl.bind._log import warning as warning_log

__all__ = ["bytes_of", "early_frees_default", "guard_every", "name_of", "share_of"]

SIZES = {
    "": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
    "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40,
    "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
}
PAGES = {"huge": ACL_HBM_MEM_HUGE, "normal": ACL_HBM_MEM_NORMAL, "huge1g": ACL_HBM_MEM_HUGE1G}
GUARDS = {"": 0, "0": 0, "1": 1, "all": 1}
GRANULE_LEAST = {"huge": 2 << 20, "normal": 2 << 20, "huge1g": 1 << 30}
# An option of `Pool`. `sets` says what it sets, `change` when to change it. `type` and `shown` are
# given if they do not follow from `kind` and `default`; `shown` is the default as docs/pool.md
# shows it.
Option = namedtuple("Option", "kind default sets change variable type shown", defaults=("", "", ""))
SIZE, SHARE, BOOL, MS, TEXT, OWN = "size", "share", "bool", "ms", "text", "own"
# All options, in the order of docs/pool.md, whose table `python -m tools.generate` writes. If an
# option is not given, its environment variable is read; without that, the default is used. A
# default of None is computed. SHARE: a size, or a percentage of the device's memory. OWN:
# `options_fill` checks the option by separate code.
OPTIONS = {
    "limit": Option(
        SHARE, None,
        "the most device memory that the pool may hold; checked when it grows",
        'other programs share the device, or `granule="auto"` needs it',
        variable="ACL_POOL_LIMIT"),
    "headroom": Option(
        SHARE, 0,
        "bytes that the pool leaves free on the device; it asks the driver before it grows",
        "HCCL, GE's own allocators or another program run out of memory",
        variable="ACL_POOL_HEADROOM"),
    "preallocate": Option(
        SHARE, 0,
        "bytes to take at the start, at most `limit`, for `stream=` or else for the first "
        "stream that uses the pool",
        "the first requests must not wait for the driver"),
    "granule": Option(
        OWN, "2MiB",
        "bytes of a page, a power of two and a multiple of the driver's granularity (2 MiB)",
        "the live peak holds thousands of pages and driver calls cost too much: larger pages "
        "need fewer calls, and waste more if the live peak holds fewer than 512",
        variable="ACL_POOL_GRANULE", type='size or `"auto"`'),
    "pages": Option(
        OWN, "huge",
        'what the driver backs a page with: `"huge"`, `"normal"`, `"huge1g"` (with a granule '
        'of 1 GiB)',
        'huge pages have run out: `"normal"`; a few very large blocks are all there is: '
        '`"huge1g"`',
        type="str"),
    "virtual": Option(
        SIZE, None,
        "addresses reserved for each stream; less with more than 16 streams",
        "the machine limits addresses and there are very many streams",
        shown="four times the limit, or the device's memory"),
    "steal": Option(
        BOOL, True,
        "whether free pages may move",
        "memory is registered for RDMA or shared by IPC: False"),
    "views": Option(
        OWN, True,
        "whether a free page may have a second address",
        "the driver or a debugger does not support that: False",
        type="bool or str"),
    "decay_ms": Option(
        MS, 0,
        "free memory that was not needed for this long goes back, from a thread",
        "the load has long pauses and other programs could use the memory: well above the "
        "time between requests",
        variable="ACL_POOL_DECAY_MS", shown="0 (off)"),
    "sync_timeout_ms": Option(
        OWN, 5000,
        "the longest wait for a stream inside an allocation",
        "kernels run for seconds and failing is worse than waiting: more; latency matters "
        "more than memory: less",
        type="int; -1: no limit"),
    "early_frees": Option(
        BOOL, None,
        "memory is freed before its last use is queued",
        "that variable is set after the pool is made, or a framework has a task queue of its "
        "own: True",
        shown="`MAX_RUNTIME_CORE_NUMBER` > 1"),
    "watch_captures": Option(
        BOOL, False,
        "ask at each allocation whether the stream is being captured",
        "a program captures without `pool.capture`"),
    "segments": Option(
        BOOL, False,
        "do without virtual memory (done by itself if the driver has none)",
        "to compare"),
    "debug": Option(
        OWN, None,
        "guard bytes around blocks ([observability.md](observability.md))",
        'memory is overwritten; `"sample:1000"` may stay on in production',
        variable="ACL_POOL_DEBUG", type="bool or str", shown="`ACL_POOL_DEBUG`"),
    "name": Option(
        TEXT, None,
        "the pool's name in ledger, metrics and log",
        "there are several pools",
        variable="ACL_POOL_NAME", shown='`"pool-0"`, ...'),
}
GRANULES_OF_LIMIT = 512         # if the live peak has fewer pages, more is wasted: docs/design.md


def bytes_of(value, name):
    """Return the bytes that an int, or a text such as ``"8GiB"`` or ``"1.5 MB"``, means."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if match is None or match[2].upper() not in SIZES:
            raise ValueError(f"{name} must look like '8GiB' or '512 MiB', not {value!r}")
        return in_memory(int(float(match[1]) * SIZES[match[2].upper()]), name)
    if not hasattr(value, "__index__"):
        kind = type(value).__name__
        raise TypeError(f"{name} must be an int or a text such as '8GiB', not {kind}")
    value = value.__index__()
    if value < 0:
        raise ValueError(f"{name} must be at least 0, not {value}")
    return in_memory(value, name)


def share_of(value, name, total):
    """Return bytes as `bytes_of` does; `value` may also be a percentage of `total`: ``"40%"``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
    if match is None:
        return bytes_of(value, name)
    if float(match[1]) > 100:
        raise ValueError(f"{name} must be at most '100%', not {value!r}")
    if total == 0:
        raise ValueError(f"{name} must be a number of bytes, not {value!r}: the device does not "
                         "tell how much memory it has")
    return int(total * float(match[1]) / 100)


cdef int environment_take(dict given, size_t total) except -1:
    """Set each option that was not given to its environment variable or its default."""
    for key, option in OPTIONS.items():
        if key not in given or given[key] is not None:
            continue
        text = os.environ.get(option.variable, "") if option.variable else ""
        if text == "":
            given[key] = option.default
        elif option.kind == MS:
            if not text.isdecimal():
                raise ValueError(
                    f"{option.variable} must be a number of milliseconds, not {text!r}")
            given[key] = int(text)
        elif option.kind == SHARE:
            given[key] = share_of(text, option.variable, total)
        elif key == "granule" and text != "auto":
            given[key] = bytes_of(text, option.variable)
        else:
            given[key] = text
    return 0


cdef int sizes_take(dict given, size_t total, int device) except -1:
    """Turn the options of kind SHARE into bytes.

    Raise if `headroom`, or without a limit `preallocate`, exceeds the device's memory; warn if the
    limit does.
    """
    for key, option in OPTIONS.items():
        if option.kind == SHARE and given[key] is not None:
            given[key] = share_of(given[key], key, total)
    for key in ("headroom", "preallocate"):
        if 0 < total < given[key] and (key != "preallocate" or given["limit"] is None):
            raise ValueError(
                f"{key} must be at most the {total} bytes of device {device}, not {given[key]}")
    if total and given["limit"] is not None and given["limit"] > total:
        warning_log("pool", "limit is %d bytes, and device %d has %d: the device is the limit",
                    given["limit"], device, total)
    return 0


cdef size_t odd_bytes(object size) except? <size_t> -1:
    size = bytes_of(size, "nbytes")
    if size >> MAX_SIZE_BITS:
        raise ValueError(f"nbytes must be below 2**46, not {size}")
    return size


def in_memory(value, name):
    """Return `value`, a number of bytes. Raise if it does not fit into 63 bits."""
    if value >= 2**63:
        raise ValueError(f"{name} must be below 2**63, not {value}")
    return value


cdef size_t soc_padding() noexcept nogil:
    """Return the bytes that are needed behind an input or output: as many as `aclrtMalloc` adds.

    On all but a few chips the cores read up to 32 bytes past a buffer's end.
    """
    cdef const char *name = aclrtGetSocName()
    if name is NULL:
        return 32
    return 0 if strncmp(name, "Ascend950", 9) == 0 or strncmp(name, "Ascend350", 9) == 0 else 32


cdef size_t memory_total(aclrtMemAttr attr) noexcept nogil:
    """Return the bytes of the current device's memory of a kind; 0 if it has none."""
    cdef size_t room = 0, total = 0
    return total if aclrtGetMemInfo(attr, &room, &total) == ACL_SUCCESS else 0


cdef aclrtMemAttr memory_kind() noexcept nogil:
    """Return the kind of memory that the current device has."""
    return ACL_HBM_MEM if memory_total(ACL_HBM_MEM) != 0 else ACL_DDR_MEM


cdef size_t device_memory() noexcept nogil:
    return memory_total(memory_kind())


cdef size_t virtual_default(size_t limit) noexcept nogil:
    """Return the bytes of addresses for one stream: four times what the pool may hold.

    The additional addresses are room for holes.
    """
    cdef size_t total = device_memory()
    if total == 0:
        total = <size_t> 32 << 30
    return 4 * (limit if 0 < limit < total else total)


cdef int granule_check(object granule, int device, aclrtMemAttr attr, dict given) except -1:
    """Raise if the page size is not a multiple of the driver's granularity."""
    cdef aclrtPhysicalMemProp prop
    cdef size_t least = 0
    cdef aclError status
    if given["segments"] or not libacl_has(b"aclrtMemGetAllocationGranularity"):
        return 0
    prop_fill(&prop, device, attr)
    with nogil:
        status = aclrtMemGetAllocationGranularity(
            &prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &least)
    if status == ACL_SUCCESS and least != 0 and granule % least:
        raise ValueError(
            f"granule must be a multiple of the driver's {least} bytes for "
            f"pages={given['pages']!r}, not {given['granule']!r}")
    return 0


def granule_of(dict given):
    """Return the page size.

    For ``"auto"``: the largest power of two of which the limit holds 512, but at least 2 MiB, or 1
    GiB for ``"huge1g"``.
    """
    if given["granule"] != "auto":
        granule = bytes_of(given["granule"], "granule")
        if granule < 65536 or granule & (granule - 1):
            raise ValueError(
                f"granule must be a power of two of at least 64 KiB, or 'auto', not {granule}")
        return granule
    if given["limit"] is None:
        raise ValueError("granule 'auto' is chosen by the limit, and none is given")
    granule = GRANULE_LEAST[given["pages"]]
    while granule * 2 * GRANULES_OF_LIMIT <= bytes_of(given["limit"], "limit"):
        granule *= 2
    return granule


cdef int options_fill(PoolOptions *options, int device, dict given) except -1:
    if not isinstance(given["pages"], str) or given["pages"] not in PAGES:
        raise ValueError(f"pages must be one of {', '.join(PAGES)}, not {given['pages']!r}")
    environment_take(given, device_memory())
    texts = dict(given)
    sizes_take(given, device_memory(), device)
    for name, option in OPTIONS.items():
        if option.kind == BOOL and not isinstance(given[name], int):
            raise TypeError(f"{name} must be a bool, not {type(given[name]).__name__}")
    if not isinstance(given["views"], int) and given["views"] != "always":
        raise ValueError(f"views must be a bool or 'always', not {given['views']!r}")
    granule = granule_of(given)
    granule_check(granule, device, PAGES[given["pages"]], given)
    timeout = given["sync_timeout_ms"]
    if not isinstance(timeout, int):
        raise TypeError(f"sync_timeout_ms must be an int, not {type(timeout).__name__}")
    if timeout == 0 or not -1 <= timeout < 2**31:
        raise ValueError(f"sync_timeout_ms must be positive, or -1 for no limit, not {timeout}")
    memset(options, 0, sizeof(PoolOptions))
    options.device = device
    options.limit = 0 if given["limit"] is None else given["limit"]
    if given["limit"] is not None and options.limit < granule:
        raise ValueError(
            f"limit must be at least one granule ({granule} bytes), not {texts['limit']!r}")
    if options.limit != 0 and given["preallocate"] > options.limit:
        raise ValueError(
            f"preallocate must be at most limit ({texts['limit']!r}), not {texts['preallocate']!r}")
    options.headroom = given["headroom"]
    options.granule = granule
    options.info_attr = memory_kind()
    options.device_bytes = device_memory()
    options.virtual_bytes = (virtual_default(options.limit) if given["virtual"] is None
                             else bytes_of(given["virtual"], "virtual"))
    options.mem_attr = PAGES[given["pages"]]
    options.sync_timeout_ms = timeout
    options.steals = given["steal"]
    options.early_frees = given["early_frees"]
    options.views = VIEWS_ALWAYS if given["views"] == "always" else bool(given["views"])
    if options.views != VIEWS_NEVER and options.steals and not given["segments"]:
        if not aliases_work(device):
            options.views = VIEWS_NEVER
    options.watches = given["watch_captures"]
    options.segments = given["segments"]
    return 0


cdef int stream_on(Stream stream, int device) except -1:
    if 0 <= stream.device != device:
        raise ValueError(f"stream is of device {stream.device}, the pool of device {device}")
    return 0


def early_frees_default():
    """True if ``MAX_RUNTIME_CORE_NUMBER`` is above 1.

    Then GE launches from several threads, and may free memory before the work on it is launched.
    """
    try:
        return int(os.environ.get("MAX_RUNTIME_CORE_NUMBER", "1")) > 1
    except ValueError:
        return False


def name_of(name, number, taken):
    """Return a unique name of the pool for reports, which would merge rows of equal names."""
    wanted = found = f"pool-{number}" if name is None else str(name)
    again = 2
    while found in taken:
        found = f"{wanted}-{again}"
        again += 1
    return found


def guard_every(debug):
    """Return N if the argument `debug` of a Pool says that one in N blocks is guarded; 0: none.

    If `debug` is None, the environment variable ``ACL_POOL_DEBUG`` is read instead.
    """
    name = "debug"
    if debug is None:
        name, debug = "ACL_POOL_DEBUG", os.environ.get("ACL_POOL_DEBUG", "")
    if debug is True or debug is False:
        return int(debug)
    if isinstance(debug, str):
        match = re.fullmatch(r"sample:(\d{1,9})", debug)
        if match is not None and int(match[1]) > 0:
            return int(match[1])
        if debug in GUARDS:
            return GUARDS[debug]
    raise ValueError(f"{name} must be a bool, 'all' or 'sample:N', such as 'sample:1000', "
                     f"not {debug!r}")
