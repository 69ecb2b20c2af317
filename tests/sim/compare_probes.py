"""Ask a libascendcl.so all probes and print where it differs from the real runtime.

`python tests/sim/compare_probes.py LIBDIR [SUBSTR] [--class must|depends|may]` runs the probe scripts
in ../shared/probes beside the project and compares with the golden answers, of which tests/sim/golden
has a copy.  Exit status 1 if a `must` line differs, or nothing was compared.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["SCRIPTS", "Difference", "compare", "golden", "probes_dir", "sanitized"]

ROOT = Path(__file__).resolve().parents[2]

#: Switched on for the probes: their kernels are device code that no host can run.
ENVIRONMENT = {"ACL_SIM_DEVICE_CODE": "skip"}

#: Each script of questions, with the file of the real runtime's answers.
SCRIPTS = {"probes.py": "golden.txt", "probes2.py": "golden2.txt", "probes3.py": "golden3.txt"}

Difference = tuple[str, str, str, str]


def probes_dir() -> Path:
    """Where the probe scripts are; they need not exist."""
    return ROOT.parent / "shared/probes"


def sanitized() -> bool:
    """Whether this run wants a sanitizer's build."""
    return os.environ.get("ACLPOOL_SIM_MODE", "") in {"asan", "tsan"}


def golden(name: str) -> dict[str, tuple[str, str]]:
    """The class and the answer of each probe in a golden file."""
    rows = {}
    for line in (ROOT / "tests/sim/golden" / name).read_text().splitlines():
        kind, rest = line.split(" ", 1)
        probe, answer = rest.split(": ", 1)
        rows[probe] = (kind, answer)
    return rows


def ask(script: str, library: Path, only: str) -> dict[str, str]:
    """What the library answers to one script's probes."""
    command = [sys.executable, str(probes_dir() / script), str(library), *([only] if only else [])]
    text = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **ENVIRONMENT}).stdout
    answers = {}
    for line in text.splitlines():
        probe, _, answer = line.partition(": ")
        answers[probe.split(" ")[-1]] = answer
    return answers


def compare(library: Path, only: str = "", kind: str = "") -> tuple[int, list[Difference]]:
    """How many probes were compared, and (class, name, expected, got) for each that differs."""
    differences = []
    count = 0
    for script, answers in SCRIPTS.items():
        expected = golden(answers)
        for probe, got in ask(script, library, only).items():
            if probe not in expected or (kind and expected[probe][0] != kind):
                continue
            count += 1
            if got != expected[probe][1]:
                differences.append((expected[probe][0], probe, expected[probe][1], got))
    return count, sorted(differences, key=lambda row: row[0], reverse=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compare a library's answers with the real runtime's.")
    parser.add_argument("library", type=Path)
    parser.add_argument("only", nargs="?", default="")
    parser.add_argument("--class", dest="kind", choices=["must", "depends", "may"], default="")
    choice = parser.parse_args()
    count, differences = compare(choice.library.resolve(), choice.only, choice.kind)
    for kind, probe, expected, got in differences:
        print(f"{kind} {probe}\n    expected {expected}\n    got      {got}")
    must = sum(row[0] == "must" for row in differences)
    print(f"{count} probes, {must} must lines differ, {len(differences) - must} others")
    if not count:
        print(f"nothing was compared: no probe of that name, no scripts in {probes_dir()}, or no library there",
              file=sys.stderr)
    return 1 if must or not count else 0


if __name__ == "__main__":
    sys.exit(main())
