"""The doctor's examinations of the machine: Python packages, CANN's libraries, the driver, the chip, and limits."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
from pathlib import Path

import acl
from acl.bind.generated import _libacl
from acl.tools.doctor.findings import Finding

__all__ = ["find_chip", "find_driver", "find_libraries", "find_limits", "find_packages"]

#: Python packages that use acl or are used by it.
PACKAGES = ("numpy", "torch", "torch-npu", "mindspore", "vllm-ascend", "onnxruntime", "prometheus-client")
#: Matches the names of CANN's libraries in /proc/self/maps.
LIBRARIES = re.compile(
    r"lib(ascend\w*|acl_\w+|runtime|ge_\w+|graph\w*|hccl\w*|op_compiler\w*|c_sec|mmpa|tsdclient|drvdsmi\w*)\.so\S*$")
DRIVER_FILES = (
    "/usr/local/Ascend/driver/version.info", "/usr/local/Ascend/firmware/version.info",
)
MIB = 1 << 20
# The values of aclrtMemGranularityOptions: the smallest granularity, and the recommended one.
GRANULARITIES = (("minimum", 0), ("recommended", 1))
# Properties of the physical memory that a pool requests: huge pages of device 0.
PROPERTIES = {"handleType": 0, "allocationType": 0, "memAttr": 4, "location": {"id": 0, "type": 1}, "reserve": 0}
FEW_STREAMS = 32                # if fewer streams can still be made, the finding is a note
PINNED_MIB = 64                 # if less memory may be locked, the finding is a note


def find_packages() -> list[Finding]:
    """Find the versions of Python packages that use acl or are used by it."""
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return [Finding("packages", "ok", ", ".join(found) or "none that matters")]


def mapped_libraries() -> list[str]:
    """Return the files of CANN's libraries that this process has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if line.count(" ") >= 5 and "/" in line}
    return sorted(path for path in paths if LIBRARIES.search(path.rsplit("/", 1)[-1]))


def find_libraries() -> list[Finding]:
    """Find the libraries of CANN that were loaded, and whether more than one `libascendcl.so` is among them."""
    paths = mapped_libraries()
    folders = sorted({os.path.dirname(os.path.realpath(path)) for path in paths})
    text = f"{len(paths)} of CANN's in this process, from {', '.join(folders) or 'nowhere'}"
    ascendcl = [path for path in paths if "/libascendcl.so" in path]
    if len({os.path.realpath(path) for path in ascendcl}) > 1:
        advice = ("two runtimes in one process share no handle: leave one CANN in LD_LIBRARY_PATH, or set "
                  "ACL_LIBRARY to the one that the rest of the program uses")
        return [Finding("libraries", "bad", f"more than one libascendcl.so: {', '.join(ascendcl)}", advice)]
    return [Finding("libraries", "ok", text)]


def version_of(path: Path) -> str:
    """Return the version in one of CANN's `version.info` files."""
    for line in path.read_text(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip().lower() == "version" and value.strip():
            return value.strip()
    return "of unknown version"


def find_driver() -> list[Finding]:
    """Find the versions of the driver and the firmware, and whether this user can open the devices' files.

    On the simulator none of them is needed, so the finding is ok.
    """
    found = []
    for name in DRIVER_FILES:
        try:
            found.append(f"{Path(name).parent.name} {version_of(Path(name))}")
        except OSError:
            continue
    nodes = sorted(str(node) for node in Path("/dev").glob("davinci[0-9]*"))
    if acl.backend() == "sim":
        return [Finding("driver", "ok", ", ".join(found) or "none, and the simulator needs none")]
    closed = [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        advice = "add the user to the group that owns them (HwHiAiUser), or give the container the devices"
        return [Finding("driver", "bad", f"no access to {', '.join(closed)}", advice)]
    if not nodes:
        advice = "install the driver; in a container, pass --device=/dev/davinci0 and the manager's devices"
        return [Finding("driver", "bad", f"no /dev/davinci*; {', '.join(found) or 'no version.info'}", advice)]
    return [Finding("driver", "ok", f"{', '.join(found) or 'no version.info'}; {len(nodes)} device nodes")]


def granularities() -> list[str]:
    """Return texts about the driver's granularities of physical memory."""
    found = []
    for name, option in GRANULARITIES:
        size, ret = acl.rt.mem_get_allocation_granularity(PROPERTIES, option)
        if ret == 0:
            found.append(f"{name} {size // 1024} KiB")
    return found


def reserve_works() -> bool:
    """Return True if addresses can be reserved, which is the first step of virtual memory."""
    address, ret = acl.rt.reserve_mem_address(2 * MIB, 0, 0, 0)
    if ret != 0:
        return False
    acl.rt.release_mem_address(address)
    return True


def find_chip() -> list[Finding]:
    """Find the chip's name, whether it has virtual memory for the pool, and whether a pool can be registered on it."""
    with acl.Device(0):
        name = acl.Device(0).name
        findings = [Finding("chip", "ok", name)]
        if reserve_works():
            units = ", ".join(granularities())
            findings.append(Finding("virtual memory", "ok", f"there{'; granularity: ' if units else ''}{units}"))
        else:
            advice = ("the pool works in segments, which wastes more memory; virtual memory needs a chip of the 310P, "
                      "910B or later families, and CANN 8.0 or later")
            findings.append(Finding("virtual memory", "note", f"{name} or this library has none", advice))
        findings.append(allocator_finding(name))
    return findings


def allocator_finding(name: str) -> Finding:
    """Find out whether a pool can be registered as an allocator on this chip."""
    if not _libacl.functions()["aclrtAllocatorRegister"]:
        return Finding("allocator registration", "note", "the library has no aclrtAllocatorRegister",
                       "use CANN 7.0 or later: without it the pool serves only what asks it directly")
    with acl.Pool(0, name="doctor") as pool, acl.Stream(0) as stream:
        try:
            pool.register(stream)
        except acl.AclError as error:
            return Finding("allocator registration", "note", f"refused on {name}: {error}",
                           "models of dynamic shape take memory from GE's own allocator here; acl.Pool serves what "
                           "asks it directly")
        pool.unregister(stream)
    return Finding("allocator registration", "ok", "there")


def find_limits() -> list[Finding]:
    """Find limits: of streams, of events, of locked memory and of mappings."""
    findings = []
    with acl.Device(0):
        streams, ret = acl.rt.get_stream_available_num()
        if ret == 0:
            findings.append(Finding(
                "streams", "ok" if streams >= FEW_STREAMS else "note", f"{streams} can still be made",
                "" if streams >= FEW_STREAMS else "close streams that are idle; each process has its share"))
        events, ret = acl.rt.get_event_avail_num()
        if ret == 0:
            findings.append(Finding("events", "ok", f"{events} can still be made"))
    return [*findings, locked_memory(), mappings()]


def locked_limit() -> int:
    """Return the bytes that the process may lock in memory."""
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def locked_memory() -> Finding:
    """Find the limit of locked memory, which pinned host memory may need."""
    soft = locked_limit()
    if soft == resource.RLIM_INFINITY:
        return Finding("locked memory", "ok", "no limit")
    if soft >= PINNED_MIB * MIB or acl.backend() == "sim":
        return Finding("locked memory", "ok", f"limit {soft // 1024} KiB")
    return Finding("locked memory", "note", f"limit {soft // 1024} KiB",
                   "pinned host memory may be refused: raise it (ulimit -l unlimited, or the service's LimitMEMLOCK)")


def mappings() -> Finding:
    """Find the kernel's limit of mappings in a process, which the simulator's virtual memory may reach."""
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
        used = sum(1 for _ in Path("/proc/self/maps").open())
    except (OSError, ValueError):
        return Finding("mappings", "ok", "not told by this kernel")
    text = f"{used} of {most} in use"
    if most < 65530:
        return Finding("mappings", "note", text, "raise it: sysctl vm.max_map_count=65530, or more for large pools")
    return Finding("mappings", "ok", text)
