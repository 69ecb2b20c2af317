"""Compares `--pool-limit` of `aclpool run` with the memory of the devices, before the program starts.

A child process asks the devices, because the program's own `acl.init` must be the first call of ACL in its process.
"""

from __future__ import annotations

import json
import os
import subprocess

import acl
from acl.inside._snapshot import readable
from acl.pool._options import share_of
from acl.tools.apart import python_command

__all__ = ["limit_checked", "main"]

GRANULE = 2 << 20                       # page size of the pools, in bytes
LARGEST = 1 << 46                       # bytes; a limit in percent is checked against it if no device answers
ANSWER_S = 60                           # seconds that the child process may take
#: Variables of the simulator that make calls fail or write files.  They are for the program, not for the child process.
PROGRAMS = tuple(f"ACL_SIM_{name}" for name in ("CHECK", "COUNTERS", "COVERAGE", "FAULTS", "LATENCY", "RACES", "TRACE"))


def limit_checked(text: str) -> None:
    """Raise ValueError if no pool can have this limit: it is malformed, below a page, or above all devices' memory."""
    share_of(text, "--pool-limit", LARGEST)             # first, because a malformed text needs no device to be refused
    most = max(device_bytes(), default=0)
    limit = share_of(text, "--pool-limit", most or LARGEST)
    if limit < GRANULE:
        of = f" of {readable(most)}" if most and "%" in text else ""
        raise ValueError(f"--pool-limit must be at least one granule (2 MiB), not {text!r}{of}")
    if 0 < most < limit:
        raise ValueError(f"--pool-limit must be at most the {readable(most)} of the largest device, not {text!r}")


def device_bytes() -> list[int]:
    """Return the bytes of each device's memory; [] if ACL or the devices do not answer."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PROGRAMS)}
    try:
        done = subprocess.run(python_command(__name__), env=environment, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, timeout=ANSWER_S, check=True)
        return [int(each) for each in json.loads(done.stdout.splitlines()[-1])]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return []                       # the program's own calls will report the error


def main(arguments: list[str]) -> None:
    """Called in the child process: print the bytes of each device's memory."""
    print(json.dumps([acl.Device(number).memory_info()[1] for number in range(acl.Device.count())]))
