"""Checks `--pool-limit` of `aclpool run` before the program starts, against the memory of the devices.

The devices are asked in a child process: the program itself starts ACL, and its `acl.init` must be the first.
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
ANSWER_S = 60                           # longest time in which a device tells how much memory it has
#: Beginnings of variables of the simulator that make calls fail or write files: they are for the program alone.
PROGRAMS = tuple(f"ACL_SIM_{name}" for name in ("CHECK", "COUNTERS", "COVERAGE", "FAULTS", "LATENCY", "RACES", "TRACE"))


def limit_checked(text: str) -> None:
    """Raise a ValueError if no pool can have this limit: it is malformed, below one page, or above every device."""
    share_of(text, "--pool-limit", LARGEST)             # a malformed text is told without a device
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
        return []                       # the program's own calls tell what is wrong


def main(arguments: list[str]) -> None:
    """Print the bytes of each device's memory, in the child."""
    print(json.dumps([acl.Device(number).memory_info()[1] for number in range(acl.Device.count())]))
