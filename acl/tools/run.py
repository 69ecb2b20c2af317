"""`aclpool run PROGRAM.py ARGS`: run a pyACL program unchanged with this package's `acl`.

The program's `import acl` gets this package, even if another `acl` is earlier on the path, with the chosen backend.
With `--pool`, every stream that the program makes is served by a pool of its device, and a report about the pools is
printed at the end.  If a call fails because a pool has no memory, the pool's report is printed to standard error.
Options of `aclpool run` may be before the program or among its arguments; options after `--` are only for the program.

The program runs in this process, as `__main__`; its exit code is that of `aclpool run`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import acl
from acl.bind.generated import _libacl
from acl.inside._snapshot import readable
from acl.tools.run_limit import limit_checked
from acl.tools.run_reports import Reports, told_after

__all__ = ["add_parser", "run"]

CREATE = ("create_stream", "create_stream_with_config", "create_stream_v2")
DESTROY = ("destroy_stream", "destroy_stream_force")


class Pools:
    """The pools of the devices on which streams are made."""

    def __init__(self, limit: str | None) -> None:
        self.limit = limit
        self.by_device: dict[int, Any] = {}
        self.by_stream: dict[int, Any] = {}
        self.refused: list[str] = []

    def stream_made(self, stream: int) -> None:
        """Register the pool of the current device for a stream; make the pool at the first stream of a device."""
        device, ret = acl.rt.get_device()
        if ret != 0:
            return
        try:
            if device not in self.by_device:
                self.by_device[device] = acl.Pool(device, self.limit)
            self.by_device[device].register(stream)
            self.by_stream[stream] = self.by_device[device]
        except (acl.AclError, ValueError) as error:
            self.refused.append(f"stream {stream:#x}: {error}")

    def stream_gone(self, stream: int) -> None:
        """Unregister a stream's pool, so that the pool does not serve a later stream with this handle."""
        pool = self.by_stream.pop(stream, None)
        if pool is not None:
            pool.unregister(stream)

    def report(self) -> list[str]:
        """Return the lines of the report on each pool."""
        lines = [line for device in sorted(self.by_device) for line in self.of_device(device)]
        lines += [f"not registered: {refusal}" for refusal in self.refused]
        return lines or ["no stream was made"]

    def failed(self) -> bool:
        """Return True if a stream could not be registered with a pool, and no device has a pool."""
        return bool(self.refused) and not self.by_device

    def of_device(self, device: int) -> list[str]:
        stats = self.by_device[device].stats()
        total = {name: sum(getattr(one, name) for one in stats.streams)
                 for name in ("hits", "fits", "recalls", "slow", "frees", "steals", "failures")}
        calls = {name: count for name, count in stats.driver_calls.items() if count}
        served = total["hits"] + total["fits"] + total["recalls"] + total["slow"] - total["failures"]
        return [
            f"pool of device {device}: {len(stats.streams)} streams, {served} allocations, {total['frees']} frees",
            f"  requested at most {mib(stats.requested_peak)}, reserved at most {mib(stats.reserved_peak)}",
            f"  {total['hits']} from the cache, {total['fits'] + total['recalls']} from free space, "
            f"{total['slow']} slow, {total['steals']} pages moved, {total['failures']} failed",
            f"  driver calls: {', '.join(f'{n} {c}' for n, c in calls.items()) or 'none'}",
        ]


def mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else readable(size)


def watched(pools: Pools, function: Callable[..., Any], made: bool) -> Callable[..., Any]:
    """Return a function of pyACL that makes (`made`) or destroys a stream, wrapped so that it also calls `pools`."""
    if made:
        def create(*arguments: Any, **named: Any) -> Any:
            stream, ret = function(*arguments, **named)
            if ret == 0:
                pools.stream_made(stream)
            return stream, ret
        return create

    def destroy(*arguments: Any, **named: Any) -> Any:
        ret = function(*arguments, **named)
        if ret == 0:
            pools.stream_gone(*arguments)
        return ret
    return destroy


@contextlib.contextmanager
def serving(pools: Pools | None) -> Iterator[None]:
    """Context manager: replace the functions of `acl.rt` that make or destroy streams, if `pools` is given.

    The new functions also call `pools`.
    """
    before = {name: getattr(acl.rt, name) for name in CREATE + DESTROY} if pools is not None else {}
    for name, function in before.items():
        assert pools is not None
        setattr(acl.rt, name, watched(pools, function, name in CREATE))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(acl.rt, name, function)


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `aclpool run`."""
    parser.add_argument("--backend", choices=("auto", "cann", "sim"), help="which library (else ACL_BACKEND decides)")
    parser.add_argument("--library", metavar="PATH", help="this libascendcl.so")
    parser.add_argument("--pool", action="store_true", help="serve every stream that the program makes from a pool")
    parser.add_argument("--pool-limit", metavar="SIZE",
                        help="the most that each device's pool may reserve, as 2GiB or 40%%; implies --pool")


def add_parser(subparsers: Any) -> None:
    """Add `run` to the command line."""
    parser = subparsers.add_parser("run", help="run a pyACL program with this package", description=__doc__,
                                   usage="aclpool run [options] PROGRAM.py [ARGS] [options] [-- ARGS]",
                                   formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    options(parser)
    # One positional argument for program and arguments: with two, argparse would remove a `--` between them.
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="PROGRAM.py ARGS", help="what to run")


def ours(arguments: argparse.Namespace) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of `aclpool run`, and the rest of the command line: the program and its arguments."""
    given: Sequence[str] = arguments.command
    end = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options(parser)
    found, rest = parser.parse_known_args(given[:end], argparse.Namespace(**vars(arguments)))
    return found, [*rest, *given[end + 1:]]


def program_code(program: str, arguments: list[str]) -> int:
    """Run the program as `__main__`, and wait for its threads.

    Return its exit code; after an exception 1, after Ctrl-C 130.
    """
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).resolve().parent)
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as leave:
        if leave.code is None or isinstance(leave.code, int):
            return leave.code or 0
        print(leave.code, file=sys.stderr)
        return 1
    except BaseException as error:
        here = error.__traceback__
        while here is not None and here.tb_frame.f_code.co_filename != program:
            here = here.tb_next
        traceback.print_exception(type(error), error, here or error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    finally:
        wait_for_threads()
    return 0


def wait_for_threads() -> None:
    """Wait for the program's threads, because they may still make streams; the interpreter waits at exit only."""
    while waiting := [one for one in threading.enumerate()
                      if one is not threading.current_thread() and not one.daemon]:
        waiting[0].join()


def run(arguments: argparse.Namespace) -> int:
    """Run the program.

    Return its exit code; 2 if it cannot be started; 1 if it ended with 0, but no stream could be served by a pool.
    """
    chosen, command = ours(arguments)
    if not command:
        print("aclpool run: which program? (aclpool run PROGRAM.py ARGS)", file=sys.stderr)
        return 2
    program = command[0]
    if not Path(program).is_file():
        print(f"aclpool run: there is no file {program}", file=sys.stderr)
        return 2
    if chosen.library and "/" in chosen.library and not Path(chosen.library).is_file():
        print(f"aclpool run: --library: there is no file {chosen.library}", file=sys.stderr)
        return 2
    for name, value in (("ACL_BACKEND", chosen.backend), ("ACL_LIBRARY", chosen.library)):
        if value:
            os.environ[name] = value
    if (chosen.backend or chosen.library) and acl.backend() is None:
        tried = "; ".join((_libacl.failure() or "").splitlines())
        print(f"aclpool run: no ACL library could be opened: {tried}", file=sys.stderr)
        return 2
    if chosen.pool_limit is not None:
        try:
            limit_checked(chosen.pool_limit)
        except ValueError as error:
            print(f"aclpool run: {error}", file=sys.stderr)
            return 2
    pools = Pools(chosen.pool_limit) if chosen.pool or chosen.pool_limit else None
    with contextlib.ExitStack() as stack:
        if pools is not None:
            stack.enter_context(told_after(Reports(lambda: list(pools.by_device.values()))))
        stack.enter_context(serving(pools))
        code = program_code(program, command[1:])
    if pools is not None:
        sys.stdout.flush()
        print("\n".join(pools.report()), flush=True)
        if not code and pools.failed():
            return 1
    return code
