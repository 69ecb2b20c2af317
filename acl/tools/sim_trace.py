"""`aclpool sim trace FILE...` and `aclpool sim coverage FILE...`: show traces and counters of several processes.

A `%p` in a FILE matches any process id, as in the option that wrote the files.
"""

from __future__ import annotations

import argparse
import glob
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acl import sim
from acl.tools.outputs import check_output, write_text

__all__ = ["Call", "calls", "chrome", "coverage", "coverage_run", "files", "trace_run"]

LINE = re.compile(r"(\d+\.\d+) (\d+) (\w+) (-?\d+) (\d+) (\d+\.\d+) (-|\d+) (-|\d+)(?: (.*))?")


@dataclass
class Call:
    """A call of ACL, from a line of a trace.

    Attributes
    ----------
    seconds : float
        Time when the call began, by the machine's monotonic clock.
    microseconds : float
        Duration of the call.
    thread, process : int
        The system's ids.
    function : str
    status : int
        The returned status; 0 for a function that returns no status.
    stream, task : int or None
        The last task that the call queued, and its stream; without a task, the stream argument.
    arguments : str
    """

    seconds: float
    microseconds: float
    thread: int
    process: int
    function: str
    status: int
    stream: int | None
    task: int | None
    arguments: str


def files(names: Iterable[str]) -> list[Path]:
    """Return the files that match the names.

    Raises
    ------
    ValueError
        No file matches a name.
    """
    found: list[Path] = []
    for name in names:
        before, mark, after = name.partition("%p")
        some = [Path(name)]
        if mark:
            fits = re.compile(re.escape(before) + r"\d+" + re.escape(after))
            some = [Path(one) for one in sorted(glob.glob(glob.escape(before) + "*" + glob.escape(after)))
                    if fits.fullmatch(one)]
        if not some or not some[0].is_file():
            raise ValueError(f"{name}: there is no such file")
        found += some
    return found


def calls(paths: Iterable[Path]) -> list[Call]:
    """Return the calls of traces, in the order in which they began.

    Raises
    ------
    ValueError
        A line is not of a trace; the message has its file and number.
    """
    found = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                match = LINE.fullmatch(line.rstrip("\n"))
                if match is None:
                    raise ValueError(f"{path}:{number}: expected a line of a trace, got {line.rstrip()[:60]!r}")
                seconds, thread, function, status, process, took, stream, task, arguments = match.groups()
                found.append(Call(float(seconds), float(took), int(thread), int(process), function, int(status),
                                  None if stream == "-" else int(stream), None if task == "-" else int(task),
                                  arguments or ""))
    return sorted(found, key=lambda call: call.seconds)


def chrome(some: list[Call]) -> dict[str, Any]:
    """Return the calls in the Trace Event Format, which chrome://tracing and Perfetto show."""
    start = some[0].seconds if some else 0.0
    events: list[dict[str, Any]] = []
    for call in some:
        events.append({
            "name": call.function, "cat": "failed" if call.status else "acl", "ph": "X", "pid": call.process,
            "tid": call.thread, "ts": round((call.seconds - start) * 1e6, 3), "dur": call.microseconds,
            "args": {"status": call.status, "stream": call.stream, "task": call.task, "arguments": call.arguments},
        })
        if call.status:
            events[-1]["cname"] = "terrible"
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def text_of(call: Call) -> str:
    """Return a line for people."""
    work = f" stream {call.stream}" if call.stream is not None else ""
    work += f" task {call.task}" if call.task is not None else ""
    return (f"{call.seconds:.6f} {call.process} {call.thread} {call.function}({call.arguments}) = {call.status}{work}"
            f" [{call.microseconds:.3f} us]")


def trace_run(options: argparse.Namespace) -> int:
    """Run `aclpool sim trace`."""
    try:
        check_output("--chrome", options.chrome)
        some = calls(files(options.files))
    except (OSError, ValueError) as error:
        print(f"aclpool sim trace: {error}", file=sys.stderr)
        return 2
    if options.chrome is not None:
        write_text(options.chrome, json.dumps(chrome(some)) + "\n")
    elif options.json:
        write_text("-", json.dumps([asdict(call) for call in some], indent=2) + "\n")
    else:
        write_text("-", "".join(f"{text_of(call)}\n" for call in some))
    return 0


def coverage(paths: Iterable[Path]) -> dict[str, Counter[str]]:
    """Return the calls of each function by status, from files of `--coverage` and `--counters`.

    A file of counters has no status: its calls are under "".

    Raises
    ------
    ValueError
        A line is of neither kind of file; the message has its file and number.
    """
    found: dict[str, Counter[str]] = {}
    for path in paths:
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            try:
                functions = json.loads(line).items()
                for name, counts in functions:
                    some = counts if isinstance(counts, dict) else {"": counts}
                    found.setdefault(name, Counter()).update({str(code): int(count) for code, count in some.items()})
            except (ValueError, TypeError, AttributeError):
                raise ValueError(f"{path}:{number}: expected a line of --coverage or --counters, "
                                 f"got {line[:60]!r}") from None
    return found


def coverage_run(options: argparse.Namespace) -> int:
    """Run `aclpool sim coverage`."""
    try:
        found = coverage(files(options.files))
    except (OSError, ValueError) as error:
        print(f"aclpool sim coverage: {error}", file=sys.stderr)
        return 2
    known = sim.functions()
    missing = [name for name in known if name not in found]
    if options.json:
        document = {"functions": {name: dict(counts) for name, counts in sorted(found.items())}, "missing": missing}
        write_text("-", json.dumps(document, indent=2) + "\n")
        return 0
    lines = [f"{len(known) - len(missing)} of {len(known)} functions were called"]
    width = max(map(len, found), default=0)
    for name, counts in sorted(found.items()):
        codes = ", ".join(f"{code} {count}" for code, count in sorted(counts.items()) if code)
        lines.append(f"{name:<{width}} {counts.total():>10} {codes}".rstrip())
    if options.missing:
        lines += ["", "never called:", *(f"  {name}" for name in missing)]
    write_text("-", "\n".join(lines) + "\n")
    return 0
