"""`aclpool trim PID`: ask the pools of one running service to return idle memory to the driver.

The service is asked over the socket of `aclpool top`.  So it must have been started with ACL_POOL_TOP=1, or have
called acl.serve_top().  Only memory of idle streams is returned; the service does not wait for streams.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from acl.inside._snapshot import readable
from acl.inside._text import printable
from acl.inside._top import FORMAT, process_lives, top_folder

__all__ = ["add_parser", "run"]

TRIM_SECONDS = 60.0


class Refused(Exception):
    """Raised, with the reason, if a process cannot be asked."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `trim` to the command line."""
    parser = subparsers.add_parser(
        "trim", help="let a running service give back idle memory", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pid", type=int, metavar="PID", help="the process to ask")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def check_process(pid: int) -> None:
    """Raise Refused if a process does not exist or belongs to another user."""
    if pid <= 0 or not process_lives(pid):
        raise Refused(f"PID: there is no process {pid}")
    try:
        owner = Path(f"/proc/{pid}").stat().st_uid
    except OSError:                         # it has just ended, or /proc is not mounted: asking will show which
        return
    if os.geteuid() not in (owner, 0):
        raise Refused(f"PID: process {pid} belongs to user {owner}; only that user and root may ask it, "
                      f"and this is user {os.geteuid()}")


def pools_of(document: Any, pid: int) -> list[dict[str, Any]]:
    """Return the results of the pools from the answer of a process; raise Refused if it is not a valid answer."""
    if document is None:
        raise Refused(f"process {pid} did not answer")
    try:
        if any(document.get(key) != value for key, value in FORMAT.items()):
            raise Refused(f"process {pid} did not answer as a service does")
        if "error" in document:
            raise Refused(f"process {pid} refuses: {document['error']}")
        return [{"name": printable(one["name"]), "device": int(one["device"]), "given": int(one["given"]),
                 "reserved": int(one["reserved"]), "error": printable(one["error"])} for one in document["pools"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"process {pid} does not know the word trim: it runs another version of the package") from error


def ask_process(pid: int) -> list[dict[str, Any]]:
    """Let a process return idle memory to the driver; return each pool's result, or raise Refused with the reason."""
    from acl.tools.top.sample import exchange, sockets

    check_process(pid)
    try:
        paths = sockets({pid})
    except PermissionError as error:
        raise Refused(str(error)) from error
    if not paths:
        raise Refused(f"process {pid} has no socket in {top_folder()}: start it with ACL_POOL_TOP=1, or let it call "
                      "acl.serve_top(); ACL_POOL_TOP_DIR must be the same here and there")
    pools = pools_of(exchange(paths[-1], "trim", TRIM_SECONDS), pid)
    if not pools:
        raise Refused(f"process {pid} has no pool")
    return pools


def run(arguments: argparse.Namespace) -> int:
    """Ask the process and print its answer; return 1 if it cannot be asked or a pool failed, else 0."""
    try:
        pools = ask_process(arguments.pid)
    except Refused as refused:
        print(f"aclpool trim: {printable(str(refused))}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps({"process": arguments.pid, "given": sum(one["given"] for one in pools), "pools": pools}))
    else:
        for one in pools:
            if not one["error"]:
                print(f"{one['name']} (device {one['device']}): {readable(one['given'])} given back, "
                      f"{readable(one['reserved'])} still reserved")
    for one in pools:
        if one["error"]:
            print(f"aclpool trim: {one['name']} (device {one['device']}): {one['error']}", file=sys.stderr)
    return 1 if any(one["error"] for one in pools) else 0
