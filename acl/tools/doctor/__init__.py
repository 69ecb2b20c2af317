"""`aclpool doctor`: say which `acl` and which library this machine uses, what is missing, and what to do.

The doctor opens the library and runs small self-tests on the current device; it changes nothing.  Each finding
has a verdict: ok, note (it works, with a restriction) or bad.  The exit code is 1 if a finding is bad.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import acl
from acl.bind.generated import _libacl
from acl.inside._asked import record_asked
from acl.inside._top import check_folder, top_folder
from acl.pool._options import guard_every
from acl.pyacl import _vendor
from acl.tools.doctor import checks as doctor_checks
from acl.tools.doctor import machine as doctor_machine
from acl.tools.doctor.deep import report as deep_report
from acl.tools.doctor.findings import Finding

__all__ = ["Finding", "add_parser", "examine", "run"]

VARIABLES = (
    "ACL_BACKEND", "ACL_LIBRARY", "ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH", "LD_PRELOAD", "ACL_POOL_BIAS",
    "ACL_POOL_DEBUG", "ACL_POOL_LEAKS", "ACL_POOL_RECORD", "ACL_POOL_TOP", "ACL_POOL_TOP_DIR",
    "MAX_RUNTIME_CORE_NUMBER")
#: Variables that would write reports about the doctor's own pools.
REPORTS = ("ACL_POOL_LEAKS", "ACL_POOL_RECORD")
#: Functions of ACL that a part of this package needs, and what is lost without each.
WANTED = {
    "aclrtAllocatorRegister": "the pool can't serve dynamic-shape models and operators",
    "aclrtReserveMemAddress": "the pool works in segments instead of stealing pages",
    "aclrtMapMem": "the pool works in segments instead of stealing pages",
    "aclrtAllocatorGetByStream": "registrations can't be read back; nothing else is lost",
    "aclrtLaunchHostFunc": "callbacks on streams run on a thread of ours",
    "aclmdlExecuteAsync": "models can't run",
    "aclopExecuteV2": "single operators can't run",
}


def find_modules() -> list[Finding]:
    """Find out which module `import acl` imports, and whether it is this package."""
    ours = Path(acl.__file__).resolve().parent
    spec = importlib.machinery.PathFinder.find_spec("acl", sys.path)
    origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    findings = [
        Finding(
            "python", "ok", f"{platform.python_version()} {platform.machine()} {sys.executable}"
        )
    ]
    findings.append(Finding("aclpool", "ok", f"{acl.__version__} in {ours}"))
    if origin is None or origin.parent == ours:
        findings.append(Finding("import acl", "ok", "this package"))
    else:
        advice = "write `import aclpool as acl`: it finds this package in any order of sys.path"
        findings.append(Finding("import acl", "note", f"{origin}, not this package", advice))
    return [*findings, find_vendor()]


def find_vendor() -> Finding:
    """Find CANN's own module, and whether the names that only it has can be used."""
    spec = _vendor.find_spec()
    names = ", ".join(sorted(_vendor.ONLY_VENDOR))
    if spec is None:
        return Finding("CANN's acl", "ok", "not installed", f"without it there is no acl.{{{names}}}")
    module = _vendor.load()
    missing = sorted(name for name in _vendor.ONLY_VENDOR if not hasattr(module, name))
    if module is None:
        advice = f"it does not load, so there is no acl.{{{names}}}: try `import acl` beside it"
        return Finding("CANN's acl", "note", str(spec.origin), advice)
    advice = f"it lacks {', '.join(missing)}" if missing else ""
    return Finding("CANN's acl", "ok", f"{spec.origin}, serves what only it has", advice)


def find_environment() -> list[Finding]:
    found = [f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)]
    findings = [Finding("environment", "ok", ", ".join(found) or "no variable that matters is set")]
    for name, read in (("ACL_POOL_RECORD", record_asked), ("ACL_POOL_DEBUG", guard_every)):
        value = os.environ.get(name)
        try:
            if value:
                read(value)
        except ValueError as error:
            findings.append(Finding(name, "bad", value or "", f"no pool can be made with it: {error}"))
    return findings + find_outputs()


def find_outputs() -> list[Finding]:
    """Return a finding for each file that an environment variable asks for and that cannot be made.

    If ACL_POOL_TOP asks for a socket, add the finding of `find_socket`.
    """
    findings = []
    for name in REPORTS:
        file = os.environ.get(name, "").split(",")[0]
        folder = Path(file).parent
        if file not in ("", "0", "1") and not (folder.is_dir() and os.access(folder, os.W_OK)):
            findings.append(Finding(name, "note", file, f"make {folder}, or let this user write to it: nothing could "
                                    "be saved there (a report of leaks goes to standard error then)"))
    if os.environ.get("ACL_POOL_TOP", "0") not in ("", "0"):
        findings += find_socket(top_folder())
    return findings


def find_socket(folder: Path) -> list[Finding]:
    """Return a finding if `aclpool top` could not see this user's processes, else an empty list.

    It sees them if the folder of the sockets exists, is accepted by `check_folder` and can be written to by this user;
    or if the folder does not exist and this user can make it.
    """
    try:
        if folder.exists():
            check_folder(folder)
        first = next(each for each in (folder, *folder.parents) if each.exists())
        if not os.access(first, os.W_OK):
            raise PermissionError(f"{first}: this user cannot write to it")
    except OSError as error:
        return [Finding("ACL_POOL_TOP", "note", str(folder), f"aclpool top will see nothing of this user's: {error}")]
    return []


@contextmanager
def without_reports() -> Iterator[None]:
    """Context manager: remove the variables that would report or guard the doctor's own pools."""
    kept = {name: os.environ.pop(name) for name in (*REPORTS, "ACL_POOL_DEBUG") if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def find_library() -> list[Finding]:
    """Find out which library is open, and which functions it lacks."""
    backend = acl.backend()
    if backend is None:
        advice = "install CANN and source its set_env.sh, or set ACL_BACKEND=sim"
        return [Finding("library", "bad", _libacl.failure() or "none", advice)]
    findings = [
        Finding(
            "library", "ok", f"{acl.library()} ({backend}, CANN {acl.cann_version() or 'unknown'})"
        )
    ]
    if backend == "sim":
        asked = os.environ.get("ACL_BACKEND") == "sim" or bool(os.environ.get("ACL_LIBRARY"))
        advice = (
            ""
            if asked
            else "no CANN was found: source its set_env.sh, or set ACL_BACKEND=sim to say it is meant"
        )
        findings.append(
            Finding("simulator", "ok" if asked else "note", "stands in for a device", advice)
        )
    have = _libacl.functions()
    missing = sorted(name for name, there in have.items() if not there)
    findings.append(Finding("functions", "ok", f"{len(have) - len(missing)} of {len(have)}"))
    for name, loss in WANTED.items():
        if not have[name]:
            findings.append(Finding(name, "note", "missing", loss))
    return findings


def find_devices() -> list[Finding]:
    """Find the devices and their memory."""
    count = acl.Device.count()
    if count == 0:
        return [
            Finding("devices", "bad", "none", "check that the driver sees a device: npu-smi info")
        ]
    findings = [Finding("devices", "ok", f"{count} x {acl.Device(0).name}")]
    for ordinal in range(count):
        free, total = acl.Device(ordinal).memory_info()
        findings.append(
            Finding(f"device {ordinal}", "ok", f"{free >> 20} of {total >> 20} MiB free")
        )
    return findings


def listed(check: Callable[[], Finding]) -> list[Finding]:
    return [check()]


def self_tests() -> list[Finding]:
    """Run the checks that use the device, even if one fails; return their findings."""
    findings = []
    for name, check in doctor_checks.CHECKS:
        findings += attempt(name, partial(listed, check))
    failed = [finding.what for finding in findings if finding.verdict == "bad"]
    if failed:
        return [*findings, Finding("self-test", "bad", f"failed: {', '.join(failed)}",
                                   "do what stands beside the failed checks, then run the doctor again")]
    return [*findings, Finding("self-test", "ok", f"{len(findings)} checks on device "
                               f"{(acl.Device.current() or acl.Device(0)).ordinal}")]


def attempt(what: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """Return the findings of `look`, or its exception as a finding."""
    try:
        return look()
    except Exception as error:
        advice = getattr(error, "hint", "") or doctor_checks.REPORT
        return [Finding(what, "bad", f"{type(error).__name__}: {error}", advice)]


def examine() -> list[Finding]:
    """Return all findings, in the order of the report."""
    findings = find_modules() + find_environment() + doctor_machine.find_packages()
    with without_reports():
        return findings + examine_library()


def examine_library() -> list[Finding]:
    """Return the findings about the library, and, if a library is open, the findings that need it."""
    findings = find_library()
    if acl.backend() is None:
        return findings
    findings += doctor_machine.find_libraries() + doctor_machine.find_driver()
    devices = attempt("devices", find_devices)
    findings += devices
    if any(finding.verdict == "bad" for finding in devices):
        return findings
    findings += attempt("chip", doctor_machine.find_chip) + attempt("limits", doctor_machine.find_limits)
    return findings + self_tests()


def add_parser(subparsers: Any) -> None:
    """Add `doctor` to the command line."""
    parser = subparsers.add_parser(
        "doctor", help="say what this machine uses, lacks, and needs", description=__doc__
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    deep_report.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the findings; return 1 if one is bad, 2 if an option needs `--deep`, else 0.

    With `--deep`, ask the deep questions instead; the status is then that of `deep.report.run`.
    """
    if arguments.deep:
        return deep_report.run(arguments)
    if given := deep_report.meant_for_deep(arguments):
        print(f"aclpool doctor: {', '.join(given)} without --deep", file=sys.stderr)
        return 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the findings say the same
        findings = examine()
    healthy = all(finding.verdict != "bad" for finding in findings)
    if arguments.json:
        print(json.dumps({"healthy": healthy, "findings": [asdict(f) for f in findings]}, indent=2))
        return 0 if healthy else 1
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        print(f"{finding.verdict:4} {finding.what:{width}}  {finding.value}")
        if finding.advice:
            print(f"{'':4} {'':{width}}  -> {finding.advice}")
    print("healthy" if healthy else "not healthy")
    return 0 if healthy else 1
