"""Break one rule at a time and see that the tests notice: `python tests/mutations/run.py [NAME ...]`.

`--part K/N` takes the K-th of N parts of them all (every N-th patch by name, from the K-th on).

Each `NAME.patch` beside this file breaks one rule of the product.  Above its diff stand two lines:

    Rule: what the patch breaks, in words
    Tests: what is run against it (pytest arguments), and must fail

and, if the tests compile by themselves what the patch touches, `Build: none`.

The tree around this file is changed and put back, so run it in a copy (CI does).  First everything
is built and all the tests that any patch names must pass as they are; then each patch is applied,
the modules that it touches are rebuilt, and its tests must fail.  A patch that no longer applies, or
does not compile, is a failure, not a success; `--check` only tells those that do not apply.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TEST_SECONDS = 1500      # for all that any patch names
BROKEN_SECONDS = 100     # a broken list may go round for ever: then the tests have noticed


@dataclass(frozen=True)
class Mutation:
    """One patch and what it says of itself."""

    path: Path
    rule: str
    tests: tuple[str, ...]
    builds: bool

    @classmethod
    def read(cls, path: Path) -> Mutation:
        head = dict(
            line.split(": ", 1)
            for line in path.read_text().split("\n--- ", 1)[0].splitlines()
            if line.startswith(("Rule: ", "Tests: ", "Build: "))
        )
        if set(head) - {"Build"} != {"Rule", "Tests"} or head.get("Build", "none") != "none":
            raise SystemExit(f"{path.name}: expected a `Rule: ` and a `Tests: ` line above the diff")
        return cls(path, head["Rule"], tuple(shlex.split(head["Tests"])), "Build" not in head)


def run(*command: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """A command in the root, its output kept; out of time, all that it started ends with it."""
    with subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            said, complained = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, said, complained)


def build() -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "setup.py", "-q", "build_ext", "--inplace")


def pytest(*arguments: str, seconds: float = TEST_SECONDS) -> tuple[int, str]:
    """pytest's exit code and output; a run that hangs counts as failed tests."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly"]
    try:
        done = run(sys.executable, "-m", "pytest", *options, *arguments, seconds=seconds)
    except subprocess.TimeoutExpired:
        return 1, f"no end after {seconds} s"
    return done.returncode, done.stdout + done.stderr


class Snapshot:
    """The built tree as it was, to go back to without building again."""

    FOLDERS = ("acl", "build", "examples")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stamps = self.look()
        for path in self.stamps:
            kept = folder / path.relative_to(ROOT)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, kept)

    def look(self) -> dict[Path, tuple[int, int]]:
        """Time and size of every file."""
        files = [p for name in self.FOLDERS for p in (ROOT / name).rglob("*") if p.is_file()]
        return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in files if "__pycache__" not in p.parts}

    def restore(self) -> None:
        """Bring back what changed and remove what is new, times included."""
        for path, stamp in self.look().items():
            if path not in self.stamps:
                path.unlink()
            elif stamp != self.stamps[path]:
                # A library that a process still has open must not change under it.
                path.unlink()
                shutil.copy2(self.folder / path.relative_to(ROOT), path)


def patch(mutation: Mutation, *options: str) -> str:
    """Apply it; what `patch` said if it did not, else nothing."""
    done = run("patch", "-p1", "--no-backup-if-mismatch", *options, "-i", str(mutation.path))
    return f"does not apply:\n{done.stdout}{done.stderr}" if done.returncode else ""


def noticed(mutation: Mutation, snapshot: Snapshot) -> str:
    """How the tests took the patch: `caught`, or what went wrong."""
    try:
        if refused := patch(mutation):
            return refused
        built = build() if mutation.builds else None
        if built and built.returncode:
            return f"does not compile:\n{built.stdout[-2000:]}{built.stderr[-2000:]}"
        os.environ["ACLPOOL_PROGRAM_SECONDS"] = str(BROKEN_SECONDS // 4)
        code, output = pytest(*mutation.tests, seconds=BROKEN_SECONDS)
    finally:
        snapshot.restore()
    # 1: tests failed; a negative code: the process died, as a broken allocator may.
    return "caught" if code == 1 or code < 0 or code >= 128 else f"SURVIVED (pytest said {code})\n{output[-1500:]}"


def check_unbroken(found: list[Mutation]) -> None:
    """All that the patches name passes on the tree as it is; options (`-k`) want a run of their own."""
    plain = {test for m in found if not any(t.startswith("-") for t in m.tests) for test in m.tests}
    own = {m.tests for m in found if any(t.startswith("-") for t in m.tests)}
    for arguments in [tuple(sorted(plain)), *sorted(own)]:
        if arguments:
            code, output = pytest(*arguments)
            if code:
                raise SystemExit(f"{shlex.join(arguments)} fails without any mutation:\n{output[-3000:]}")


def part(text: str) -> tuple[int, int]:
    """`K/N`, with K from 1 to N."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N, not {text!r}")
    return int(number), int(count)


def check_applying(found: list[Mutation]) -> int:
    """Say which patches do not fit the sources as they are; nothing is changed."""
    stale = [f"{one.path.name} {refused}" for one in found if (refused := patch(one, "--dry-run"))]
    print("\n".join(stale) or f"{len(found)} mutations apply")
    return 1 if stale else 0


def chosen() -> tuple[list[Mutation], bool]:
    """The patches that the command line names, all well formed; and whether they are only to be looked at."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="patches to try (default: all)")
    parser.add_argument("--part", metavar="K/N", type=part, default=(1, 1), help="one part of them")
    parser.add_argument("--check", action="store_true", help="only see that they apply")
    arguments = parser.parse_args()
    number, count = arguments.part
    every = [Mutation.read(path) for path in sorted(HERE.glob("*.patch"))]
    unknown = set(arguments.names) - {one.path.stem for one in every}
    if unknown:
        raise SystemExit(f"no such mutation: {', '.join(sorted(unknown))}")
    wanted = [one for one in every if not arguments.names or one.path.stem in arguments.names]
    return wanted[number - 1 :: count], arguments.check


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # what runs is ended, and the tree put back
    found, check = chosen()
    if check:
        return check_applying(found)
    built = build()
    if built.returncode:
        raise SystemExit(f"the tree does not build as it is:\n{built.stdout[-3000:]}{built.stderr[-3000:]}")
    check_unbroken(found)
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        snapshot = Snapshot(Path(folder))
        for number, mutation in enumerate(found, 1):
            started = time.monotonic()
            verdict = noticed(mutation, snapshot)
            survived += verdict != "caught"
            print(f"[{number}/{len(found)}] {mutation.path.stem}: {verdict} in "
                  f"{time.monotonic() - started:.0f} s  ({mutation.rule})", flush=True)
    print(f"{len(found) - survived} passed, {survived} failed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
