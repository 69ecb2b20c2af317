"""The probes: what the library answers, what the runtime's own code answered, and the differences as a patch."""

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
#: Each script of questions, with the file of the runtime's answers.
SCRIPTS = {"probes.txt": "golden.txt", "probes2.txt": "golden2.txt", "probes3.txt": "golden3.txt"}
#: For the simulator: the probes' kernels are device code that no host can run.
ENVIRONMENT = {"ACL_SIM_DEVICE_CODE": "skip"}
SECONDS = 240.0


def golden(name: str) -> dict[str, tuple[str, str]]:
    """The class and the answer of each probe in a golden file."""
    rows = {}
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        kind, rest = line.split(" ", 1)
        probe, answer = rest.split(": ", 1)
        rows[probe] = (kind, answer)
    return rows


def answers_of(script: str, library: Path, only: str = "", seconds: float = SECONDS) -> Iterator[tuple[str, str]]:
    """The name and the answer of each probe of a script, as they come, for so many seconds.

    Parameters
    ----------
    script : str
        One of `SCRIPTS`.
    library : Path
        The folder of the libascendcl.so.
    only : str
        A part of the probes' names; all if empty.
    seconds : float
        When to stop; what was not asked by then is left out.
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
    """A patch of a golden file that makes its answers those that were found; empty if they agree.

    It applies in a clone's root (`patch -p1`). Then `tests/sim/compare_probes.py` says where the simulator differs.
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
    """Ask this library all probes, and compare with the runtime's own code and so with the simulator's rules."""
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
        # A probe that waits a while may answer otherwise on a busy host: a line of class `must` is asked twice.
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
