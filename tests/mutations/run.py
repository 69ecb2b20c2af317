"""Break one rule at a time and see that the tests notice: `python tests/mutations/run.py [NAME ...]`.

Each `NAME.patch` beside this file breaks one rule of the product.  Above its diff stand two lines:

    Rule: what the patch breaks, in words
    Tests: the tests that notice, as narrow as can be (pytest arguments)

and, if these tests compile by themselves what the patch touches, `Build: none`.

Without names, a run takes the patches that concern the change: those that touch a file, or name a test
file, whose code has changed since `--base` (comments do not count, see changes.py).  Of the others it
takes a quarter, chosen by the hash of HEAD; `--full` takes all.  `--narrow` rewrites the `Tests:` lines:
only the test that failed first stays.

The tree around this file is changed and put back, so run it in a copy (CI does).  First everything
is built and all the tests that the patches name must pass as they are; then each patch is applied,
the modules that it touches are rebuilt, and its tests must fail.  A patch that no longer applies,
does not compile, or names a test that is not there is a failure, not a success; `--check` looks for
the first and the last of these, and changes nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import changes

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TEST_SECONDS = 1500      # for one run of all tests that the patches name
TRIES = 3                # runs of a surviving patch's tests: some rules break only in a race
BROKEN_SECONDS = 60      # tests that take longer count as failed: a broken list may loop for ever
QUARTERS = 4             # a run tries one quarter of the patches that do not concern the change
CHANGE_SECONDS = 4 * 3600      # without --base, a change is what was committed in the four hours before HEAD
CHECKS_MACHINERY = ("tests/mutations/run.py", "setup.py")     # a change of these concerns every patch


@dataclass(frozen=True)
class Mutation:
    """One patch and what it says of itself."""

    path: Path
    rule: str
    tests: tuple[str, ...]
    builds: bool
    sources: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Mutation:
        text = path.read_text()
        head = dict(
            line.split(": ", 1)
            for line in text.split("\n--- ", 1)[0].splitlines()
            if line.startswith(("Rule: ", "Tests: ", "Build: "))
        )
        if set(head) - {"Build"} != {"Rule", "Tests"} or head.get("Build", "none") != "none":
            raise SystemExit(f"{path.name}: expected a `Rule: ` and a `Tests: ` line above the diff")
        sources = tuple(re.findall(r"^\+\+\+ b/(\S+)", text, re.M))
        return cls(path, head["Rule"], tuple(shlex.split(head["Tests"])), "Build" not in head, sources)

    def modules(self) -> list[str] | None:
        """What `build_ext --only` is to rebuild; None where a header makes it everything."""
        if not self.builds:
            return []
        found = set()
        for source in map(Path, self.sources):
            if source.suffix in (".py", ".js", ".html", ".css"):
                continue
            if source.parts[:2] == ("acl", "sim"):
                found.add("simulator")
            elif source.suffix == ".pyx" and source.parts[:3] == ("acl", "pyacl", "generated"):
                found.add(f"acl.{source.stem}")
            elif source.suffix == ".pyx":
                found.add(".".join(source.with_suffix("").parts))
            else:
                return None
        return sorted(found)

    def test_files(self) -> set[str]:
        return {test.split("::")[0] for test in self.tests if test.startswith("tests/")}

    def missing_tests(self) -> list[str]:
        """Named tests that are not there; parameters are not looked at."""
        missing = []
        for test in self.tests:
            if test.startswith("tests/"):
                file, _, name = test.partition("::")
                name = name.rpartition("::")[2].split("[")[0]
                path = ROOT / file
                if not path.exists() or (name and f"def {name}(" not in path.read_text()):
                    missing.append(test)
        return missing


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


def build(modules: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    """Build these modules in place, or everything."""
    only = [] if modules is None else ["--only", ",".join(modules)]
    return run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", *only)


def pytest(*arguments: str, seconds: float = TEST_SECONDS) -> tuple[int, str]:
    """pytest's exit code and output; a run that hangs counts as failed tests."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-n", "0"]
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
    """Apply the mutation; return what `patch` printed if that failed, else an empty text."""
    done = run("patch", "-p1", "--no-backup-if-mismatch", *options, "-i", str(mutation.path))
    return f"does not apply:\n{done.stdout}{done.stderr}" if done.returncode else ""


def noticed(mutation: Mutation, snapshot: Snapshot) -> tuple[str, str]:
    """How the tests took the patch: `caught`, or what went wrong; and what pytest said."""
    try:
        if refused := patch(mutation):
            return refused, ""
        modules = mutation.modules()
        built = build(modules) if modules != [] else None
        if built and built.returncode:
            return f"does not compile:\n{built.stdout[-2000:]}{built.stderr[-2000:]}", ""
        os.environ["ACLPOOL_PROGRAM_SECONDS"] = str(BROKEN_SECONDS // 3)
        for _ in range(TRIES):
            code, output = pytest(*mutation.tests, seconds=BROKEN_SECONDS)
            if code:
                break
    finally:
        snapshot.restore()
    # 1: tests failed; a negative code: the process died, as a broken allocator may.
    if code == 1 or code < 0 or code >= 128:
        return "caught", output
    return f"SURVIVED (pytest said {code})\n{output[-1500:]}", output


def narrow(mutation: Mutation, output: str) -> None:
    """Leave only the test that failed in the patch's `Tests:` line, if pytest named one."""
    failed = re.search(r"^(?:FAILED|ERROR) (tests/\S+?::\w+(?:\[.*?\])?)(?: - |$)", output, re.M)
    if failed and not any(test.startswith("-") for test in mutation.tests):
        text = mutation.path.read_text()
        line = f"Tests: {shlex.quote(failed[1])}"
        mutation.path.write_text(re.sub(r"^Tests: .*$", lambda _: line, text, count=1, flags=re.M))


def check_unbroken(found: list[Mutation]) -> None:
    """All that the patches name passes on the tree as it is; options (`-k`) want a run of their own."""
    plain = {test for m in found if not any(t.startswith("-") for t in m.tests) for test in m.tests}
    own = {m.tests for m in found if any(t.startswith("-") for t in m.tests)}
    for arguments in [tuple(sorted(plain)), *sorted(own)]:
        if arguments:
            code, output = pytest(*arguments)
            if code:
                raise SystemExit(f"{shlex.join(arguments)} fails without any mutation:\n{output[-3000:]}")


def check_fitting(found: list[Mutation]) -> int:
    """Say which patches do not fit the sources and the tests as they are; nothing is changed."""
    stale = [f"{one.path.name} {refused}" for one in found if (refused := patch(one, "--dry-run"))]
    stale += [f"{one.path.name}: no test {test}" for one in found for test in one.missing_tests()]
    print("\n".join(stale) or f"{len(found)} mutations apply")
    return 1 if stale else 0


def git(*arguments: str) -> str:
    return run("git", *arguments).stdout.strip()


def changed(base: str) -> set[str] | None:
    """The files whose code differs from `base`, or from the last commit four hours older than HEAD; None: not known."""
    if not base and (moment := git("log", "-1", "--format=%ct")):
        base = git("rev-list", "-1", f"--before={int(moment) - CHANGE_SECONDS}", "HEAD")
    files = changes.changed_files(base) if base else None
    return None if files is None else set(changes.changed_code(base, files))


def selected(every: list[Mutation], base: str) -> list[Mutation]:
    """Those that concern the change, and a quarter of the others."""
    differing = changed(base)
    if differing is None or differing & set(CHECKS_MACHINERY):
        return every
    quarter = int(git("rev-parse", "HEAD") or "0", 16) % QUARTERS
    chosen = []
    others = 0
    for one in every:
        concerned = {*one.sources, *one.test_files(), str(one.path.relative_to(ROOT))} & differing
        others += not concerned
        if concerned or others % QUARTERS == quarter:
            chosen.append(one)
    return chosen


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="patches to try (default: see above)")
    parser.add_argument("--full", action="store_true", help="try all of them")
    parser.add_argument("--base", default="", metavar="REV", help="the change is what differs from REV "
                        "(default: the last commit that is four hours older than HEAD)")
    parser.add_argument("--check", action="store_true", help="only see that they apply and their tests exist")
    parser.add_argument("--narrow", action="store_true", help="leave only the test that failed in `Tests:` lines")
    return parser.parse_args()


def wanted(arguments: argparse.Namespace) -> list[Mutation]:
    """The patches that the command line means, all well formed."""
    every = [Mutation.read(path) for path in sorted(HERE.glob("*.patch"))]
    unknown = set(arguments.names) - {one.path.stem for one in every}
    if unknown:
        raise SystemExit(f"no such mutation: {', '.join(sorted(unknown))}")
    if arguments.names:
        return [one for one in every if one.path.stem in arguments.names]
    return every if arguments.full or arguments.check else selected(every, arguments.base)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # what runs is ended, and the tree put back
    os.environ.pop("ACLPOOL_STRICT", None)      # what is broken may earn a warning
    arguments = parsed()
    found = wanted(arguments)
    if arguments.check:
        return check_fitting(found)
    print(f"{len(found)} of {len(list(HERE.glob('*.patch')))} mutations: {' '.join(m.path.stem for m in found)}",
          flush=True)
    built = build()
    if built.returncode:
        raise SystemExit(f"the tree does not build as it is:\n{built.stdout[-3000:]}{built.stderr[-3000:]}")
    check_unbroken(found)
    survived: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        snapshot = Snapshot(Path(folder))
        for number, mutation in enumerate(found, 1):
            started = time.monotonic()
            verdict, output = noticed(mutation, snapshot)
            if verdict != "caught":
                survived.append(f"{mutation.path.stem}: {verdict}")
            if arguments.narrow and verdict == "caught":
                narrow(mutation, output)
            print(f"[{number}/{len(found)}] {mutation.path.stem}: {verdict} in "
                  f"{time.monotonic() - started:.0f} s  ({mutation.rule})", flush=True)
    print(*survived, sep="\n")     # again at the end, where who reads a log looks
    print(f"{len(found) - len(survived)} passed, {len(survived)} failed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
