"""The package on a machine with restrictions: refused system calls, few addresses, no `/dev/shm`.

Each restriction either has no effect or causes an error that names it.  `tests/sim/test_refused_by_the_host.py` tests
restrictions for which a call of the simulator returns an error.
"""

from __future__ import annotations

import errno
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.child import child_environment

HERE = Path(__file__).parent
#: Numbers of system calls.
CALLS = {
    "x86_64": {"membarrier": 324, "memfd_create": 319, "process_vm_readv": 310, "perf_event_open": 298,
               "timer_create": 222, "fallocate": 285},
    "aarch64": {"membarrier": 283, "memfd_create": 279, "process_vm_readv": 270, "perf_event_open": 241,
                "timer_create": 107, "fallocate": 47},
}[platform.machine()]
USE = """
import threading
import numpy as np
import acl
from acl.tools.demo.models import encoder

pool, stream = acl.Pool(device=0, limit="1GiB"), acl.Stream(0)
pool.register(stream)
model = acl.Model(encoder().to_bytes())
for length in (100, 7, 200):
    model(np.ones((1, length, 64), "float32"), np.ones((1, length), "float32"), stream=stream)

def use():
    for size in range(1, 2000):
        pool.alloc(size, stream=stream).close()

use()
other = threading.Thread(target=use)
other.start()
other.join()
model.close()
pool.unregister(stream)
print(pool.check(), pool.stats().allocated)
"""


@pytest.fixture(scope="session")
def without(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("machines") / "without"
    subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", HERE / "without.c", "-o", made], check=True)
    return made


def used(*before: str | Path, code: str = USE, limits: Sequence[tuple[int, int]] = (),
         **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a new process with these limits; return its exit code and output."""
    def limited() -> None:
        for kind, most in limits:
            resource.setrlimit(kind, (most, most))
    return subprocess.run([*before, sys.executable, "-c", code], preexec_fn=limited, capture_output=True, text=True,
                          timeout=300, cwd="/", env=child_environment(**environment))


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["membarrier", "process_vm_readv", "perf_event_open", "timer_create", "fallocate"])
def test_system_call_that_a_filter_refuses_is_done_without(without: Path, call: str, number: int) -> None:
    done = used(without, str(number), str(CALLS[call]), "--")
    assert done.stdout == "0 0\n", done.stderr


def test_memory_files_that_a_filter_refuses_are_named(without: Path) -> None:
    done = used(without, str(errno.EPERM), str(CALLS["memfd_create"]), "--")
    assert done.returncode == 1
    assert "the host refused memfd_create" in done.stderr and os.strerror(errno.EPERM) in done.stderr


def test_limit_of_addresses_of_160_gigabytes_does_no_harm() -> None:
    """Most of the addresses that the simulator reserves do not depend on the memory of its devices."""
    done = used(limits=[(resource.RLIMIT_AS, 160 << 30)], ACL_SIM_MEMORY="2G")
    assert done.stdout == "0 0\n", done.stderr


def test_locked_memory_limit_of_zero_does_no_harm() -> None:
    done = used(limits=[(resource.RLIMIT_MEMLOCK, 0)])
    assert done.stdout == "0 0\n", done.stderr


FULL = "mount -t tmpfs -o size=4k none /dev/shm; head -c 4096 /dev/zero > /dev/shm/full"
ABSENT = """
    mount -t tmpfs none /mnt
    for device in null zero full random urandom; do
        touch /mnt/$device
        mount --bind /dev/$device /mnt/$device
    done
    mount --rbind /mnt /dev
    [ ! -e /dev/shm ]
"""


@pytest.mark.parametrize("mounts", [FULL, ABSENT], ids=["full", "absent"])
def test_shared_memory_that_is_full_or_absent_is_not_needed(mounts: str) -> None:
    unshare = shutil.which("unshare")
    assert unshare is not None
    done = used(unshare, "--user", "--map-root-user", "--mount", "sh", "-e", "-c", f'{mounts}\nexec "$@"', "sh")
    assert done.stdout == "0 0\n", done.stderr
