"""If the host's kernel refuses a request, the message says so, and does not name a full device or too many objects."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.child import run_python

sys.path.insert(0, str(Path(__file__).resolve().parent))
import compare_probes

pytestmark = pytest.mark.skipif(compare_probes.sanitized(), reason="a sanitizer's shadow needs the addresses")

CODE = """
    import ctypes, resource, sys
    from acl import sim
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[1]),) * 2)
    lib = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
    lib.aclGetRecentErrMsg.restype = ctypes.c_char_p
    def tell(name, *arguments):
        print(name, getattr(lib, name)(*arguments), (lib.aclGetRecentErrMsg() or b"").decode().strip())
    place = ctypes.c_void_p()
    lib.aclInit(None)
    tell("aclrtSetDevice", 0)
    for _ in range(3):
        tell("aclrtMalloc", ctypes.byref(place), ctypes.c_size_t(64), 0)
    tell("aclrtMallocHost", ctypes.byref(place), ctypes.c_size_t(64))
    tell("aclrtMemAllocManaged", ctypes.byref(place), ctypes.c_uint64(64), 1)
"""


def told(more: int, strict: str = "0") -> list[str]:
    done = run_python(CODE.replace("sys.argv[1]", str(more)), ACL_SIM_MEMORY="32G", ACL_SIM_STRICT=strict)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_lack_of_addresses_for_handles_is_not_reported_as_too_many_contexts() -> None:
    line = told(10 << 30)[0]
    assert line.startswith("aclrtSetDevice 207005")
    assert "the host refused mmap of " in line and "for handles: Cannot allocate memory" in line


def test_lack_of_addresses_for_a_device_is_not_reported_as_a_full_device() -> None:
    lines = told(60 << 30)
    assert lines[0] == "aclrtSetDevice 0 "
    for line, purpose in zip(lines[1:], [*["the device's memory"] * 3, "pinned memory", "managed memory"], strict=True):
        assert " 207005 " in line
        assert "the host refused mmap of " in line and f"for {purpose}: Cannot allocate memory" in line


def test_strict_mode_leaves_addresses_for_pinned_memory() -> None:
    """A device takes twice the addresses in strict mode, so the host's memory gets fewer, as under valgrind."""
    lines = told(80 << 30, strict="1")
    assert [line.split()[1] for line in lines] == ["0"] * 6


def test_a_device_that_the_host_refused_leaves_no_addresses_behind() -> None:
    """Each failed attempt releases its addresses: after many of them a smaller reservation still succeeds."""
    done = run_python(CODE.replace("sys.argv[1]", str(60 << 30)).replace("range(3)", "range(50)"),
                      ACL_SIM_MEMORY="32G")
    lines = done.stdout.splitlines()
    assert len(lines) == 53, done.stderr
    assert lines[1] == lines[50]


def test_malloc_refused_for_want_of_file_descriptors_names_memfd_create() -> None:
    done = run_python("""
        import ctypes, resource
        from acl import sim
        lib = ctypes.CDLL(sim.library_dir() + "/libascendcl.so")
        lib.aclGetRecentErrMsg.restype = ctypes.c_char_p
        lib.aclInit(None)
        assert lib.aclrtSetDevice(0) == 0
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        place = ctypes.c_void_p()
        print(lib.aclrtMalloc(ctypes.byref(place), ctypes.c_size_t(64), 0), lib.aclGetRecentErrMsg().decode())
    """)
    assert done.stdout.startswith("207005"), done.stdout + done.stderr
    assert "the host refused memfd_create" in done.stdout
    assert os.strerror(24) in done.stdout


STRICT = """
    #define _GNU_SOURCE
    #include <errno.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    /* As with vm.overcommit_memory=2 on a machine with 2 GiB: writable private memory is counted whole. */
    static int refused(size_t bytes, int protection)
    {
        errno = ENOMEM;
        return (protection & PROT_WRITE) != 0 && bytes > (size_t)2 << 30;
    }
    void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
    {
        return (flags & MAP_PRIVATE) != 0 && refused(bytes, protection)
                   ? MAP_FAILED : (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
    }
    int mprotect(void *at, size_t bytes, int protection)
    {
        return refused(bytes, protection) ? -1 : (int)syscall(SYS_mprotect, at, bytes, protection);
    }
"""


def test_simulator_works_on_a_host_that_counts_reserved_addresses_as_memory(tmp_path: Path) -> None:
    """Addresses for handles and devices are reserved without access rights, and made writable when they are needed."""
    library = tmp_path / "strict.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-xc", "-"], input=STRICT, text=True, check=True)
    done = run_python("""
        import acl
        streams = [acl.Stream(0) for _ in range(3)]
        with acl.Pool(device=0) as pool, pool.alloc(1 << 20, stream=streams[0]) as block:
            print(block.nbytes)
    """, LD_PRELOAD=str(library))
    assert done.stdout == "1048576\n", done.stderr


def test_a_shared_file_is_reserved_whole(tmp_path: Path) -> None:
    """If the file were sparse and the disk were full, an access to a page would cause a bus error."""
    shared = tmp_path / "devices"
    done = run_python("import acl; acl.Stream(0)", ACL_SIM_SHARED=str(shared))
    assert done.returncode == 0, done.stderr
    assert shared.stat().st_blocks * 512 >= shared.stat().st_size > 0
