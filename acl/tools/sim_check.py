"""`aclpool sim check -- PROGRAM ARGS`: run a program, C or Python, on the simulator, and report misuse.

The simulator finds misuse, and writes a line for each report to a file.  This process reads the file while the program
runs.  It finds the source lines of C frames (with addr2line, if that is installed), and leaves out reports that a
suppression matches.  It writes text to standard error, and JSON or SARIF to files.

A file of suppressions has lines `RULE:PATTERN`, such as `leak:*libtorch*`.  RULE is a rule or a tool and may have
wildcards.  PATTERN is compared with the message and with each line of a stack.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

from acl.tools.outputs import check_output, write_text

__all__ = ["RULES", "TOOLS", "Reports", "add_arguments", "look", "pattern_of", "run", "text_of"]

TOOLS = ("mem", "order", "leak", "init")

#: The meaning of each rule.
RULES = {
    "use-after-free": "memory is used that was freed",
    "overflow": "more bytes are used than were asked for",
    "invalid-address": "an address is used where nothing is allocated or mapped",
    "double-free": "memory is freed twice",
    "wrong-free": "memory is freed by the wrong function, or from inside a block",
    "wrong-kind": "the kind of a copy is not what its ends are",
    "host-access": "the host's own code touches device memory",
    "freed-in-use": "memory is freed or unmapped while a queued task uses it",
    "use-after-destroy": "a handle is used that was destroyed",
    "order": "two accesses to the same bytes that nothing orders",
    "host-rewrite": "pinned memory is written while a copy from it is queued",
    "destroyed-in-use": "an event is destroyed while queued tasks use it",
    "deadlock": "streams wait for each other",
    "leak": "an object or memory is never given back",
    "unfinished": "the program ends while tasks are queued or running",
    "uninitialised": "device memory is read that was never written",
}
POLL_S = 0.1

Report = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `aclpool sim check` has."""
    parser.add_argument("--tool", metavar="LIST", default="all",
                        help=f"what to look for: some of {','.join(TOOLS)} (default: all)")
    parser.add_argument("--report", metavar="FILE", help="write the reports as JSON when the program has ended")
    parser.add_argument("--sarif", metavar="FILE", help="write them as SARIF 2.1.0")
    parser.add_argument("--suppressions", metavar="FILE", help="leave out what lines RULE:PATTERN fit")
    parser.add_argument("--error-exitcode", metavar="N", default="1",
                        help="end with N if there are reports (default 1); 0: with the program's own status")


def look(options: argparse.Namespace) -> None:
    """Raise ValueError, which names the option, if an option has a wrong value."""
    for tool in options.tool.split(","):
        if tool not in (*TOOLS, "all"):
            raise ValueError(f"--tool: expected some of {','.join(TOOLS)}, or all, got {tool!r}")
    code = options.error_exitcode
    if not (code.isascii() and code.isdigit() and int(code) <= 255):
        raise ValueError(f"--error-exitcode: expected 0 to 255, got {code!r}")
    for option in ("report", "sarif"):
        if getattr(options, option) is not None:
            check_output(f"--{option}", getattr(options, option))
    patterns(options.suppressions)


def patterns(path: str | None) -> list[tuple[str, str]]:
    """Return the rules and patterns of a file of suppressions; none if `path` is None.

    Raise ValueError if the file cannot be read or a line is wrong.
    """
    if path is None:
        return []
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--suppressions: {path}: {error}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found.append(pattern_of(line))
            except ValueError as error:
                raise ValueError(f"--suppressions: {path}:{number}: {error}") from None
    return found


def pattern_of(line: str) -> tuple[str, str]:
    """Return the rule and the pattern of a line RULE:PATTERN; raise ValueError if RULE matches no rule and no tool."""
    rule, colon, pattern = line.strip().partition(":")
    if not colon or not any(fnmatch.fnmatchcase(name, rule) for name in (*RULES, *TOOLS)):
        raise ValueError(f"expected RULE:PATTERN, got {line!r}")
    return rule, pattern


# --- frames ---------------------------------------------------------------------------------------------


class Lines:
    """Convert C frames, given as (file, offset, address), to texts `source:line in function`."""

    def __init__(self) -> None:
        self._program = shutil.which("addr2line")
        self._known: dict[tuple[str, int], str | None] = {}

    def find(self, frame: list[Any]) -> str | None:
        """Return the frame's source line; None if addr2line is not installed or does not find the line."""
        path, offset, address = frame
        at = (address if fixed(path) else offset) - 1       # minus 1: inside the call instruction, not after it
        if (path, at) not in self._known:
            self._known[path, at] = self._ask(path, at)
        return self._known[path, at]

    def _ask(self, path: str, at: int) -> str | None:
        if self._program is None or not Path(path).is_file():
            return None
        try:
            done = subprocess.run([self._program, "-f", "-C", "-e", path, hex(at)], capture_output=True, text=True,
                                  timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
        function, _, place = done.stdout.strip().partition("\n")
        place = re.sub(r" \(discriminator \d+\)$", "", place)
        return f"{place} in {function}" if place and not place.startswith("?") and not place.endswith("?") else None


def fixed(path: str) -> bool:
    """Return True if a file is a program that is loaded at fixed addresses (ET_EXEC)."""
    try:
        with open(path, "rb") as file:
            head = file.read(18)
    except OSError:
        return False
    return head[:4] == b"\x7fELF" and head[16:18] == b"\x02\x00"


def resolved(report: Report, lines: Lines) -> Report:
    """Return the report with the known source lines of its frames, and without the frames of `main`'s callers."""
    for place in report["places"]:
        stack = []
        for text, frame in zip(place["stack"], place.pop("frames") or [None] * len(place["stack"]), strict=False):
            line = None if frame is None else lines.find(frame)
            stack.append(line or text)
            if stack[-1].endswith(" in main"):
                break
        place["stack"] = stack
    return report


# --- reports --------------------------------------------------------------------------------------------


class Reports:
    """The reports of all processes.

    `add` prints a report immediately, unless a suppression matches it.  It drops a report if an earlier one had the
    same rule, the same places (addresses and other numbers are not compared) and the same stacks.
    """

    def __init__(self, suppressions: list[tuple[str, str]], to: TextIO) -> None:
        self.kept: list[Report] = []
        self.suppressed = 0
        self._suppressions = suppressions
        self._seen: set[str] = set()
        self._lines = Lines()
        self._to = to

    def add(self, line: str) -> None:
        """Add a line of the simulator's file."""
        report = resolved(json.loads(line), self._lines)
        key = re.sub(r"0x[0-9a-f]+|\d+", "", json.dumps([report["rule"], report["places"]]))
        stacks = json.dumps([place["stack"] for place in report["places"]])
        if key + stacks in self._seen:
            return
        self._seen.add(key + stacks)
        if self._fits(report):
            self.suppressed += 1
            return
        self.kept.append(report)
        self._to.write(text_of(report))
        self._to.flush()

    def _fits(self, report: Report) -> bool:
        texts = [report["message"], *(line for place in report["places"] for line in place["stack"])]
        return any(
            (fnmatch.fnmatchcase(report["rule"], rule) or fnmatch.fnmatchcase(report["tool"], rule))
            and any(fnmatch.fnmatchcase(text, pattern) for text in texts)
            for rule, pattern in self._suppressions)

    def summary(self) -> str:
        """Return one line that summarises all reports."""
        counts = Counter(report["tool"] for report in self.kept)
        what = ", ".join(f"{tool} {counts[tool]}" for tool in TOOLS if counts[tool])
        total = len(self.kept)
        text = f"{total} report{'s' * (total != 1)} ({what})" if total else "no reports"
        return text + (f"; {self.suppressed} suppressed" if self.suppressed else "")


def text_of(report: Report) -> str:
    """Return a report as a text for people."""
    lines = [f"acl.sim: check: {report['rule']}: {report['message']}"]
    for place in report["places"]:
        lines.append(f"    {place['what']}")
        lines += [f"      at {frame}" for frame in place["stack"]]
    return "\n".join(lines) + "\n"


def location(frame: str) -> dict[str, Any]:
    """Return a frame as a location of SARIF."""
    match = re.fullmatch(r"(.+):(\d+) in (.+)", frame)
    if match is None:
        return {"logicalLocations": [{"fullyQualifiedName": frame}]}
    place = {"artifactLocation": {"uri": match[1]}, "region": {"startLine": max(1, int(match[2]))}}
    return {"physicalLocation": place, "logicalLocations": [{"name": match[3]}]}


def result(report: Report) -> dict[str, Any]:
    """Return a report as a result of SARIF.

    The first place that has a stack is the location; the other places with a stack are related locations.
    """
    first, *others = [place for place in report["places"] if place["stack"]] or [None]
    made: dict[str, Any] = {"ruleId": report["rule"], "level": "warning" if report["tool"] == "leak" else "error",
                            "message": {"text": report["message"]}}
    if first is not None:
        made["locations"] = [location(first["stack"][0])]
        made["stacks"] = [{"message": {"text": place["what"]},
                           "frames": [{"location": location(frame)} for frame in place["stack"]]}
                          for place in report["places"] if place["stack"]]
    if others:
        made["relatedLocations"] = [{**location(place["stack"][0]), "message": {"text": place["what"]}}
                                    for place in others]
    return made


def sarif(reports: list[Report]) -> dict[str, Any]:
    """Return all reports as a SARIF document."""
    rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()]
    driver = {"name": "aclpool sim check", "rules": rules}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": [result(report) for report in reports]}]}


# --- the program ----------------------------------------------------------------------------------------


def follow(path: Path, reports: Reports, ended: threading.Event) -> None:
    """Pass each new line of a file to `reports`, until the program has ended and all lines were read."""
    with open(path) as file:
        rest = ""
        while True:
            last = ended.wait(POLL_S)
            rest += file.read()
            *whole, rest = rest.split("\n")
            for line in whole:
                reports.add(line)
            if last:
                return


def wait(child: subprocess.Popen[bytes]) -> int:
    """Wait for the program and return its exit status; if a signal ended it, the signal's number, negative.

    The terminal sends Ctrl-C to the program too, so this process ignores SIGINT.  SIGTERM is passed to the program.
    """
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    try:
        return child.wait()
    finally:
        for number, action in before:
            signal.signal(number, action)


def run(path: str, line: list[str], env: dict[str, str], options: argparse.Namespace) -> int:
    """Run the program and report.

    Return the program's exit status, as a shell gives it.  But if there are reports and `--error-exitcode` is not 0,
    return that number.
    """
    reports = Reports(patterns(options.suppressions), sys.stderr)
    with tempfile.TemporaryDirectory(prefix="aclpool-check-") as folder:
        found = Path(folder, "found")
        found.touch()
        env = {**env, "ACL_SIM_CHECK": options.tool, "ACL_SIM_CHECK_JSON": str(found), "ACL_SIM_CHECK_TEXT": "0"}
        ended = threading.Event()
        follower = threading.Thread(target=follow, args=(found, reports, ended))
        follower.start()
        try:
            status = wait(subprocess.Popen(line, executable=path, env=env))
        finally:
            ended.set()
            follower.join()
    if status < 0:
        print(f"aclpool sim check: {line[0]} was ended by signal {-status} ({signal.strsignal(-status)})",
              file=sys.stderr)
    print(f"aclpool sim check: {reports.summary()}", file=sys.stderr)
    write(options, reports.kept)
    if reports.kept and int(options.error_exitcode) != 0:
        return int(options.error_exitcode)
    return status if status >= 0 else 128 - status


def write(options: argparse.Namespace, reports: list[Report]) -> None:
    """Write the files that the options ask for."""
    if options.report is not None:
        write_text(options.report, json.dumps({"reports": reports}, indent=2) + "\n")
    if options.sarif is not None:
        write_text(options.sarif, json.dumps(sarif(reports), indent=2) + "\n")
