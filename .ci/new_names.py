"""The form of new commit subjects and new test names; `house_rules.py` runs this.

New is what came after the commit that brought this file; of subjects, only those of the four hours before HEAD,
because a subject cannot be mended once it is published.  What is older keeps its form.

    a subject       area: verb object                    core: end an iteration when its sentinel is freed
    a test's name   test_object_condition_result         test_buffer_closed_twice_is_freed_once

A program cannot tell a verb from a noun.  So it refuses what such names never begin with, and what is too short
to have the three parts.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOURS = 4
MOST = 72       # characters of a subject
AREA = re.compile(r"[A-Za-z][\w./, -]{1,30}: ")
NOT_FIRST = set("a an the it its this that these those they there what which who whom whose whoever nobody somebody "
                "where when whether how why no not one two and or but".split())


def subject_fault(subject: str) -> str:
    """Say what is wrong with a commit's subject; empty if it has the form."""
    if subject.startswith(("Revert ", "Merge ")):
        return ""
    area = AREA.match(subject)
    if not area:
        return "expected `area: verb object`"
    first = subject[area.end():].split()[:1]
    if not first or first[0].lower() in NOT_FIRST:
        return f"expected a verb after `{area[0].strip()}`, not {' '.join(first) or 'nothing'!r}"
    if ";" in subject:
        return "a `;` joins two changes; make two commits, or say the second in the body"
    return f"{len(subject)} characters, at most {MOST}" if len(subject) > MOST else ""


def name_fault(name: str) -> str:
    """Say what is wrong with a test's name; empty if it has the form."""
    parts = name.removeprefix("test_").split("_")
    if parts[0] in NOT_FIRST:
        return f"begins with {parts[0]!r}; expected the object: test_object_condition_result"
    return "has fewer than three words; expected test_object_condition_result" if len(parts) < 3 else ""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout


def tests_in(text: str) -> set[str]:
    return set(re.findall(r"^[+ ]? *(?:async )?def (test_\w+)\(", text, re.M))


def new_tests(start: str) -> set[str]:
    """Return the tests of lines that were added since `start` and whose names nothing had then."""
    diff = git("diff", "-U0", start, "--", "tests/*.py")
    added = tests_in("\n".join(line for line in diff.splitlines() if line.startswith("+")))
    if not added:
        return set()
    before = git("grep", "-h", "-E", r"def test_\w+\(", start, "--", "tests")
    return added - tests_in(before)


def complaints() -> list[str]:
    """Return what is wrong with the names that are new; nothing without the commits of git."""
    start = git("log", "--diff-filter=A", "--format=%H", "-1", "--", ".ci/new_names.py").strip()
    moment = git("log", "-1", "--format=%ct").strip()
    if not start or not moment:
        return []
    recent = git("log", "--no-merges", f"--since={int(moment) - HOURS * 3600}", "--format=%h %s", f"{start}..HEAD")
    found = [f"commit {line.split(' ', 1)[0]}: {fault}: {line.split(' ', 1)[1]}"
             for line in recent.splitlines() if (fault := subject_fault(line.split(" ", 1)[1]))]
    return found + [f"{name}: {fault}" for name in sorted(new_tests(start)) if (fault := name_fault(name))]
