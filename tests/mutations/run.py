"""Break one rule at a time and see that the tests notice: `python tests/mutations/run.py [NAME ...]`.

Each `NAME.patch` beside this file breaks one rule of the product.  Above its diff stand two lines:

    Rule: what the patch breaks, in words
    Tests: the tests that notice, as narrow as can be (pytest arguments)

and, if these tests compile the changed files themselves, `Build: none`.

Without names, a run takes the patches that concern the change: those that touch a file, or name a test
file, whose code has changed since `--base` (comments do not count, see changes.py).  Of the other patches
it takes a quarter, chosen by the hash of HEAD; `--full` takes all.  `--narrow` rewrites the `Tests:` lines:
it leaves only the test that failed first.

The tree around this file is changed and restored, so run it in a copy (CI does).  First everything is
built, and all tests that the patches name must pass.  Then each patch is applied, the modules that it
touches are rebuilt, and its tests must fail.  It is an error if a patch does not apply, does not compile,
or names a test that does not exist.  `--check` looks only for the first and the last of these errors, and
changes nothing.
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
TEST_SECONDS = 1500      # time limit of a run of all tests that the patches name
TRIES = 3                # runs of a patch's tests until it counts as survived: some rules break only in a race
BROKEN_SECONDS = 60      # time limit of a patch's tests; then they count as failed: broken code may loop for ever
QUARTERS = 4             # of the patches that do not concern the change, a run takes one of this many parts
CHANGE_SECONDS = 4 * 3600      # without --base, a change is what was committed in the four hours before HEAD
CHECKS_MACHINERY = ("tests/mutations/run.py", "setup.py")     # if one of these changes, all patches are taken


@dataclass(frozen=True)
class Mutation:
    """A patch, with the rule and the tests that its first lines name."""

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
        """Return the modules to rebuild; None for all, because the patch changes a header."""
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
        """Return the named tests that do not exist; parameters of tests are not checked."""
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
    """Run a command in the root folder and return its output; after `seconds`, end it with all its processes."""
    with subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            said, complained = process.communicate(timeout=seconds)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, said, complained)


def build(modules: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    """Build these modules in place, or all if None."""
    only = [] if modules is None else ["--only", ",".join(modules)]
    return run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", *only)


def pytest(*arguments: str, seconds: float = TEST_SECONDS) -> tuple[int, str]:
    """Run pytest; return its exit code and output.  A run that hangs counts as failed."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-n", "0"]
    try:
        done = run(sys.executable, "-m", "pytest", *options, *arguments, seconds=seconds)
    except subprocess.TimeoutExpired:
        return 1, f"no end after {seconds} s"
    return done.returncode, done.stdout + done.stderr


class Snapshot:
    """A copy of the built tree, to restore it without building again."""

    FOLDERS = ("acl", "build", "examples", "tools")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stamps = self.look()
        for path in self.stamps:
            kept = folder / path.relative_to(ROOT)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, kept)

    def look(self) -> dict[Path, tuple[int, int]]:
        """Return the time and the size of every file."""
        files = [p for name in self.FOLDERS for p in (ROOT / name).rglob("*") if p.is_file()]
        return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in files if "__pycache__" not in p.parts}

    def restore(self) -> None:
        """Restore changed files, with their times, and remove new files."""
        for path, stamp in self.look().items():
            if path not in self.stamps:
                path.unlink()
            elif stamp != self.stamps[path]:
                # Replace the file instead of overwriting it, because a process may still use it as a library.
                path.unlink()
                shutil.copy2(self.folder / path.relative_to(ROOT), path)


def patch(mutation: Mutation, *options: str) -> str:
    """Apply the mutation; return what `patch` printed if that failed, else an empty text."""
    done = run("patch", "-p1", "--no-backup-if-mismatch", *options, "-i", str(mutation.path))
    return f"does not apply:\n{done.stdout}{done.stderr}" if done.returncode else ""


def noticed(mutation: Mutation, snapshot: Snapshot) -> tuple[str, str]:
    """Apply a patch and run its tests; return `caught` or what went wrong, and pytest's output."""
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
    # 1: tests failed.  A negative code: the process was killed by a signal, which a broken allocator may cause.
    if code == 1 or code < 0 or code >= 128:
        return "caught", output
    return f"SURVIVED (pytest said {code})\n{output[-1500:]}", output


def narrow(mutation: Mutation, output: str) -> None:
    """If pytest named the failed test, leave only this test in the patch's `Tests:` line."""
    failed = re.search(r"^(?:FAILED|ERROR) (tests/\S+?::\w+(?:\[.*?\])?)(?: - |$)", output, re.M)
    if failed and not any(test.startswith("-") for test in mutation.tests):
        text = mutation.path.read_text()
        line = f"Tests: {shlex.quote(failed[1])}"
        mutation.path.write_text(re.sub(r"^Tests: .*$", lambda _: line, text, count=1, flags=re.M))


def check_unbroken(found: list[Mutation]) -> None:
    """Check that all named tests pass in the unchanged tree; tests with options (`-k`) run separately."""
    plain = {test for m in found if not any(t.startswith("-") for t in m.tests) for test in m.tests}
    own = {m.tests for m in found if any(t.startswith("-") for t in m.tests)}
    for arguments in [tuple(sorted(plain)), *sorted(own)]:
        if arguments:
            code, output = pytest(*arguments)
            if code:
                raise SystemExit(f"{shlex.join(arguments)} fails without any mutation:\n{output[-3000:]}")


def check_fitting(found: list[Mutation]) -> int:
    """Print the patches that do not apply, lack a test or cannot be undone; return the exit status.  Change nothing."""
    stale = [f"{one.path.name} {refused}" for one in found if (refused := patch(one, "--dry-run"))]
    stale += [f"{one.path.name}: no test {test}" for one in found for test in one.missing_tests()]
    stale += [f"{one.path.name}: {source} would not be restored: add its folder to Snapshot.FOLDERS"
              for one in found for source in one.sources if Path(source).parts[0] not in Snapshot.FOLDERS]
    print("\n".join(stale) or f"{len(found)} mutations apply")
    return 1 if stale else 0


def git(*arguments: str) -> str:
    return run("git", *arguments).stdout.strip()


def changed(base: str) -> set[str] | None:
    """Return the files whose code differs from `base`, by default the last commit four hours before HEAD.

    Return None if they are unknown.
    """
    if not base and (moment := git("log", "-1", "--format=%ct")):
        base = git("rev-list", "-1", f"--before={int(moment) - CHANGE_SECONDS}", "HEAD")
    files = changes.changed_files(base) if base else None
    return None if files is None else set(changes.changed_code(base, files))


def selected(every: list[Mutation], base: str) -> list[Mutation]:
    """Return the patches that concern the change, and a quarter of the other patches."""
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
    """Return the patches that the command line chooses; exit if a name is unknown or a patch is malformed."""
    every = [Mutation.read(path) for path in sorted(HERE.glob("*.patch"))]
    unknown = set(arguments.names) - {one.path.stem for one in every}
    if unknown:
        raise SystemExit(f"no such mutation: {', '.join(sorted(unknown))}")
    if arguments.names:
        return [one for one in every if one.path.stem in arguments.names]
    return every if arguments.full or arguments.check else selected(every, arguments.base)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # end the running command, and restore the tree
    os.environ.pop("ACLPOOL_STRICT", None)      # a patch may cause compiler warnings, which must not be errors
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
    print(*survived, sep="\n")     # once more, because readers look at the end of a log
    print(f"{len(found) - len(survived)} passed, {len(survived)} failed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
