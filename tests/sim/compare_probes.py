"""Run all probes on a libascendcl.so and print where its answers differ from the real runtime's.

`python tests/sim/compare_probes.py LIBDIR [SUBSTR] [--class must|depends|may]` runs the programs in
acl/tools/doctor/probes and compares their answers with the golden ones beside them.  The exit status is 1 if a
`must` line differs or nothing was compared.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from acl.tools.doctor.deep.probing import SCRIPTS, answers_of, golden

__all__ = ["SCRIPTS", "Difference", "compare", "golden", "sanitized"]

Difference = tuple[str, str, str, str]


def sanitized() -> bool:
    """True if this run uses a build with a sanitizer."""
    return os.environ.get("ACLPOOL_SIM_MODE", "") in {"asan", "tsan"}


def compare(library: Path, only: str = "", kind: str = "") -> tuple[int, list[Difference]]:
    """Return the number of probes compared, and (class, name, expected, got) for each that differs."""
    differences = []
    count = 0
    for script, answers in SCRIPTS.items():
        expected = golden(answers)
        for probe, got in answers_of(script, library, only):
            if probe not in expected or (kind and expected[probe][0] != kind):
                continue
            count += 1
            if got != expected[probe][1]:
                differences.append((expected[probe][0], probe, expected[probe][1], got))
    return count, sorted(differences, key=lambda row: row[0], reverse=True)


def main() -> int:
    """Run the command line and return its exit status."""
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
        print("nothing was compared: no probe of that name, or no library there", file=sys.stderr)
    return 1 if must or not count else 0


if __name__ == "__main__":
    sys.exit(main())
