"""`aclpool sim faults --sweep -- PROGRAM ARGS`: let each call of a program fail once, and see what it does.

The program first runs without a fault, which shows its calls.  Then it runs again for the first, the second and the
last call of each function, with this call failing.  A run is listed if the program

    crashed     ended by a signal
    hung        was not done in time, and was ended
    leaked      left objects or memory that it releases if no call fails
    unnoticed   ended with status 0, as if no call had failed

The right outcome is that the program ends with another status.  The exit status is 1 if a run crashed, hung or leaked.
If several processes make the call with this number, it fails in each of them.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from acl.tools.outputs import check_output, write_text

__all__ = ["OUTCOMES", "Run", "add_arguments", "look", "sweep"]

#: All outcomes, the worst first; `failed` is the right one.
OUTCOMES = ("crashed", "hung", "leaked", "unnoticed", "failed", "not reached")
TOLD = ("crashed", "hung", "leaked", "unnoticed")

#: Functions that release an object.  If one fails, the object still exists; that is not a leak.
GIVES_BACK = re.compile(r"Destroy|Free|Finalize|Release|Reset|Trim|Unload|UnLoad|Unmap|Unregister|UnRegister|Close")


@dataclass
class Run:
    """One run of the program.

    Attributes
    ----------
    rule : str
        The call that failed, in the form of `ACL_SIM_FAULTS`.
    outcome : str
        One of OUTCOMES.
    status : int or None
        The exit status, negative for a signal; None if the program was not done in time.
    leaks : list of str
        Objects and memory that exist at the end, but do not exist if no call fails.
    output : str
        The last 4,000 bytes that the program wrote to standard error.
    """

    rule: str
    outcome: str = ""
    status: int | None = None
    leaks: list[str] = field(default_factory=list)
    output: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `aclpool sim faults` has."""
    parser.add_argument("--sweep", action="store_true", required=True, help="let one call after another fail")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="only functions that fit, as 'aclrtM*'")
    parser.add_argument("--code", metavar="N", help="what a failing call returns (default: as a fault without code)")
    parser.add_argument("--timeout", metavar="SECONDS", default="60", help="how long one run may take (default 60)")
    parser.add_argument("--jobs", metavar="N", default=str(len(os.sched_getaffinity(0))),
                        help="how many runs at a time (default: one for each core)")
    parser.add_argument("--json", metavar="FILE", help="write every run as JSON ('-': standard output)")


def look(options: argparse.Namespace) -> None:
    """Raise ValueError, which names the option, if an option has a wrong value."""
    for option in ("jobs", "code"):
        value = getattr(options, option)
        if value is not None and not (value.isascii() and value.isdigit() and int(value) > 0):
            raise ValueError(f"--{option}: expected a number of at least 1, got {value!r}")
    try:
        seconds = float(options.timeout)
    except ValueError:
        seconds = 0
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"--timeout: expected seconds above 0, got {options.timeout!r}")
    check_output("--json", options.json)


class Program:
    """The program, with its calls and its leaks in a run without faults.

    Parameters
    ----------
    path, line, env
        The arguments of `os.execve`.
    timeout : float
        Seconds that a run may take.
    """

    def __init__(self, path: str, line: list[str], env: dict[str, str], timeout: float) -> None:
        self._path, self._line, self._env, self._timeout = path, line, env, timeout
        self._usual: Counter[str] = Counter()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()       # guards `_children`, and `_stopped`, after which no child is started
        self._stopped = False
        self.calls: dict[str, int] = {}

    def undisturbed(self) -> Run:
        """Run the program without a fault; store its calls, and the objects and memory that exist at its end."""
        with tempfile.TemporaryDirectory(prefix="aclpool-faults-") as folder:
            done = self._run(Run(""), Path(folder), {})
            self.calls = most_calls(Path(folder))
        self._usual = Counter(done.leaks)
        return done

    def disturbed(self, rule: str) -> Run:
        """Run the program with one failing call; return the run, with its outcome and its leaks."""
        with tempfile.TemporaryDirectory(prefix="aclpool-faults-") as folder:
            done = self._run(Run(rule), Path(folder), {"ACL_SIM_FAULTS": rule})
            name, nth = rule.split(":")[:2]
            reached = most_calls(Path(folder)).get(name, 0) >= int(nth.removeprefix("nth="))
        more = Counter(done.leaks) - self._usual
        done.leaks = [] if GIVES_BACK.search(rule.split(":")[0]) else sorted(more.elements())
        done.outcome = outcome(done, reached)
        return done

    def stop(self) -> None:
        """End all runs, and start no more."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.kill()                # the thread that waits for the child ends its process group

    def _run(self, run: Run, folder: Path, variables: dict[str, str]) -> Run:
        found = folder / "found"
        env = {**self._env, "ACL_SIM_CHECK": "leak", "ACL_SIM_CHECK_JSON": str(found), "ACL_SIM_CHECK_TEXT": "0",
               "ACL_SIM_COUNTERS": str(folder / "counters")}
        env.update(variables)
        with open(folder / "errors", "w+b") as errors:
            with self._lock:
                if self._stopped:
                    return run
                child = subprocess.Popen(self._line, executable=self._path, env=env, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True)
                self._children.add(child)
            try:
                run.status = child.wait(self._timeout)
            except subprocess.TimeoutExpired:
                pass
            finally:
                with self._lock:
                    self._children.remove(child)
                end_group(child)
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4000))
            run.output = errors.read().decode(errors="replace")
        lines = found.read_text().splitlines() if found.exists() else []
        run.leaks = [re.sub(r"0x[0-9a-f]+", "0x...", json.loads(text)["message"]) for text in lines]
        return run


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End the program and the processes that it started; they are one process group."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def most_calls(folder: Path) -> dict[str, int]:
    """Return, for each function, the number of calls in the process that called it most often."""
    found: dict[str, int] = {}
    counters = folder / "counters"
    for text in counters.read_text().splitlines() if counters.exists() else []:
        for name, calls in json.loads(text).items():        # the file has a line for each process
            found[name] = max(calls, found.get(name, 0))
    return found


def outcome(run: Run, reached: bool) -> str:
    """Return the outcome of a run, one of OUTCOMES.

    If a child of a shell or a script ends by a signal, the exit status is 128 or more.  `reached`: the call failed in
    a process that then ended by itself.  (Each process reports only for itself whether it made the call.)
    """
    if run.status is None:
        return "hung"
    if run.status < 0 or (run.status > 128 and run.status - 128 in set(map(int, signal.Signals))):
        return "crashed"
    if not reached and f"ACL_SIM_FAULTS: {run.rule} made no call fail" in run.output:
        return "not reached"
    if run.leaks:
        return "leaked"
    return "unnoticed" if run.status == 0 else "failed"


def rules(calls: dict[str, int], only: str, code: str | None) -> list[str]:
    """Return a rule for the first, the second and the last call of each function whose name matches `only`."""
    tail = "" if code is None else f":code={code}"
    return [f"{name}:nth={nth}{tail}" for name, count in calls.items() if fnmatch.fnmatchcase(name, only)
            for nth in sorted({1, min(2, count), count})]


def described(run: Run) -> str:
    """Return the run as text for people: a line with the outcome, and lines with its leaks."""
    status = run.status
    if run.outcome == "crashed" and status is not None:
        number = -status if status < 0 else status - 128
        return f"crashed    {run.rule} ({signal.Signals(number).name})"
    lines = [f"{run.outcome:<10} {run.rule}"]
    lines += [f"             {leak}" for leak in run.leaks if run.outcome == "leaked"]
    return "\n".join(lines)


@contextmanager
def stopped_early(program: Program) -> Iterator[None]:
    """Context manager: after an exception such as Ctrl-C, end all runs instead of waiting for them."""
    try:
        yield
    except BaseException:
        program.stop()
        raise


def sweep(path: str, line: list[str], env: dict[str, str], options: argparse.Namespace) -> int:
    """Run the program for each rule and report.

    Return the exit status: 0; 1 if a run crashed, hung or leaked; 2 if the program fails without a fault, or if no
    function that it calls matches `--only`.
    """
    program = Program(path, line, env, float(options.timeout))
    usual = program.undisturbed()
    if usual.status != 0:
        how = "was not done in time" if usual.status is None else f"ended with {usual.status}"
        print(f"aclpool sim faults: undisturbed the program {how}, expected 0\n{usual.output}", file=sys.stderr, end="")
        return 2
    todo = rules(program.calls, options.only, options.code)
    if not todo:
        print(f"aclpool sim faults: the program called no function that fits {options.only!r}", file=sys.stderr)
        return 2
    runs = []
    progress = sys.stderr.isatty()
    with ThreadPoolExecutor(int(options.jobs)) as pool, stopped_early(program):
        for number, run in enumerate(pool.map(program.disturbed, todo), 1):
            runs.append(run)
            if run.outcome in TOLD:
                print(f"{chr(13) if progress else ''}{described(run)}", file=sys.stderr)
            if progress:
                print(f"\r{number} of {len(todo)} runs", end="", file=sys.stderr, flush=True)
    counts = Counter(run.outcome for run in runs)
    summary = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])
    print(f"{chr(13) if progress else ''}{len(runs)} runs: {summary}", file=sys.stderr)
    if options.json is not None:
        document = {"program": line, "counts": {name: counts[name] for name in OUTCOMES},
                    "runs": [asdict(run) for run in runs]}
        write_text(options.json, json.dumps(document, indent=2) + "\n")
    return 1 if any(counts[name] for name in ("crashed", "hung", "leaked")) else 0
