"""`aclpool ledger`: show how much memory of each device is free, held by other processes, or held by this process.

This command can ask only the driver, which reports one sum for all other processes.  The rows of a pool are known
only in the pool's process: see `acl.memory_ledger`, `aclpool top`, and the metrics.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import Any

import acl

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add `ledger` to the command line."""
    parser = subparsers.add_parser(
        "ledger", help="where each device's memory is, as seen from outside", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, help="only this one")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the ledgers. Return 1 if a device does not exist."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        count = acl.Device.count()
    for one in told:        # such as the warning that the simulator is used
        print(f"aclpool ledger: {one.message}", file=sys.stderr)
    wanted = range(count) if arguments.device is None else [arguments.device]
    if count == 0 or not all(0 <= device < count for device in wanted):
        print(f"aclpool ledger: --device: expected 0 to {count - 1}, got {arguments.device}" if count else
              "aclpool ledger: there is no device (aclpool doctor says why)", file=sys.stderr)
        return 1
    ledgers = [acl.memory_ledger(device) for device in wanted]
    if arguments.json:
        print(json.dumps([ledger.as_dict() for ledger in ledgers], indent=2))
    else:
        print("\n".join(str(ledger) for ledger in ledgers))
    return 0
