"""The probes: compares the library's answers with those of the runtime's own code; writes a patch of the differences.

A probe is a small call or sequence of calls whose result is known from a run of the runtime's own code.
"""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import acl
from acl.tools.doctor.deep.answers import Answer, Say

__all__ = ["FOLDER", "SCRIPTS", "answers_of", "ask_probes", "golden", "patch"]

FOLDER = Path(__file__).resolve().parents[1] / "probes"
#: By a script of probes: the file with the answers of the runtime's own code (the "golden" answers).
SCRIPTS = {"probes.txt": "golden.txt", "probes2.txt": "golden2.txt", "probes3.txt": "golden3.txt"}
#: Variables for the simulator: it skips the probes' kernels, because they are device code, which no host can run.
ENVIRONMENT = {"ACL_SIM_DEVICE_CODE": "skip"}
SECONDS = 240.0


def golden(name: str) -> dict[str, tuple[str, str]]:
    """Return the class and the answer of each probe in a golden file, by the probe's name."""
    rows = {}
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        kind, rest = line.split(" ", 1)
        probe, answer = rest.split(": ", 1)
        rows[probe] = (kind, answer)
    return rows


def answers_of(script: str, library: Path, only: str = "", seconds: float = SECONDS) -> Iterator[tuple[str, str]]:
    """Run the probes of a script; yield the name and the answer of each.

    Parameters
    ----------
    script : str
        One of `SCRIPTS`.
    library : Path
        The folder of the libascendcl.so.
    only : str
        Run only probes whose names contain this text; all if empty.
    seconds : float
        Time limit; later probes are left out.
    """
    command = [sys.executable, str(FOLDER / script), str(library), *([only] if only else [])]
    deadline = time.monotonic() + seconds
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, **ENVIRONMENT})
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            probe, found, answer = line.rstrip("\n").partition(": ")
            if found:
                yield probe.split(" ")[-1], answer
            if time.monotonic() > deadline:
                process.kill()
                return


def patch(name: str, found: dict[str, str]) -> str:
    """Return a patch that puts the found answers into a golden file; empty if they agree.

    Apply it with `patch -p1` in the root of a clone.  Then `tests/sim/compare_probes.py` shows where the simulator
    differs.
    """
    before = (FOLDER / name).read_text(encoding="utf-8").splitlines(keepends=True)
    after = []
    for line in before:
        kind, rest = line.rstrip("\n").split(" ", 1)
        probe, answer = rest.split(": ", 1)
        after.append(f"{kind} {probe}: {found.get(probe, answer)}\n")
    path = f"acl/tools/doctor/probes/{name}"
    return "".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", n=0))


def ask_probes(say: Say) -> Answer:
    """Question: which probes does this library answer differently from the runtime's own code?"""
    library = Path(acl.library() or "").resolve().parent
    total = sum(len(golden(name)) for name in SCRIPTS.values())
    deadline = time.monotonic() + SECONDS
    count = 0
    differ: dict[str, list[str]] = {"must": [], "depends": [], "may": []}
    patches = []
    for script, name in SCRIPTS.items():
        expected = golden(name)
        found = {}
        for probe, answer in answers_of(script, library, seconds=deadline - time.monotonic()):
            count += 1
            if count % 50 == 0:
                say(f"{count} of {total} probes")
            if probe in expected and answer != expected[probe][1]:
                differ[expected[probe][0]].append(probe)
                found[probe] = answer
        # Repeat the probes of class `must` that differ: one that waits may give another answer on a busy host.
        for probe in [probe for probe in found if expected[probe][0] == "must"]:
            if dict(answers_of(script, library, probe, 30)).get(probe) == expected[probe][1]:
                differ["must"].remove(probe)
                del found[probe]
        patches.append(patch(name, found))
    if not count:
        return Answer("failed", f"no probe answered: the programs in {FOLDER} do not run with {library}")
    text = ", ".join(f"{len(probes)} of class {kind}" for kind, probes in differ.items())
    text += f" ({', '.join(differ['must'])})" if differ["must"] else ""
    late = f"; {total - count} were not asked in {SECONDS:.0f} s" if count < total else ""
    return Answer("note" if differ["must"] or late else "ok",
                  f"{count} probes, answered differently: {text}{late}; probes.patch has the answers",
                  {"probes": count, "differ": differ}, {"probes.patch": "".join(patches)})
