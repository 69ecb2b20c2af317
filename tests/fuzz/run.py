"""Fuzz the readers of foreign bytes: the simulator's by libFuzzer, those in Python by readers.py.

    python tests/fuzz/run.py [HARNESS ...] [--seconds N] [--full] [--work FOLDER]

Without an option, each harness runs a fixed number of fixed cases; all harnesses together take about two minutes.  With
`--seconds`, each harness runs new cases for N seconds; with `--full`, for an hour, with four harnesses at a time.

The simulator is built by clang with AddressSanitizer and UBSan (Debian's package `clang`).  Each harness begins
with the seeds of seeds.py and with the files of corpus/HARNESS, which are earlier findings.  The file of a new finding
is left in FOLDER/found, and the run ends with status 1:

    FOLDER/fuzz_model FOLDER/found/crash-...        repeats the finding (environment: see ENVIRONMENT)
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

__all__ = ["HARNESSES", "main"]

#: The number of cases of each harness without a time limit: about two minutes in all.
HARNESSES = {
    "model": 80_000, "operator": 150_000, "bundle": 60_000, "binary": 200_000, "text": 150_000,
    "files": 4_000, "top": 8_000, "http": 5_000,
}
SEED = 14
IN_PYTHON = ("files", "top", "http")
SIDE_BY_SIDE = 4        # number of harnesses that run at the same time with --full

# NULL + 0 (reported by pointer-overflow) is undefined in C before C2y, but harmless, so that check is off.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-sanitize=pointer-overflow"]
FLAGS = ["-O1", "-g", "-DSIM_DEBUG", "-fno-omit-frame-pointer", *SANITIZE]

ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=32",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "ACL_SIM_ENGINE": "builtin",
    "ACL_SIM_DEVICES": "1",
    "ACL_SIM_MEMORY": "64M",
    "ACL_SIM_LOOP_TURNS": "100",
}
OPTIONS = ["-timeout=30", "-rss_limit_mb=1024", "-malloc_limit_mb=1024", "-max_len=8192", "-print_final_stats=0",
           "-verbosity=0"]


def simulator_builder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sim_build", ROOT / "acl/sim/build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(work: Path, names: list[str]) -> None:
    """Build the simulator's objects and `work/fuzz_NAME`; raise RuntimeError with the compiler's message."""
    builder = simulator_builder()
    builder.MODES["fuzz"] = [*FLAGS, "-fsanitize=fuzzer-no-link", "-Wno-error"]
    builder.build(work / "simulator", "fuzz", compiler="clang")
    objects = sorted(str(one) for one in (work / "simulator/.objects-fuzz").glob("*/*.o"))
    for name in names:
        sources = [str(HERE / f"fuzz_{name}.c")] + ([str(HERE / "fuzz_mutator.c")] if name == "model" else [])
        command = ["clang", "-std=c11", "-D_GNU_SOURCE", "-pthread", "-Wall", "-Wextra", *FLAGS, "-fsanitize=fuzzer",
                   f"-I{ROOT}/acl/include", f"-I{ROOT}/acl/sim", *sources, *objects, "-o", str(work / f"fuzz_{name}"),
                   "-lm", "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)


def run_c(name: str, limit: list[str], work: Path) -> bool:
    """Run a harness; return True if it found nothing."""
    folders = [work / "grown" / name, HERE / "corpus" / name, work / "seeds" / name]
    if not limit:       # a run without options has fixed cases, so remove the cases that an earlier run has stored
        limit = [f"-seed={SEED}", f"-runs={HARNESSES[name]}"]
        shutil.rmtree(folders[0], ignore_errors=True)
    folders[0].mkdir(parents=True, exist_ok=True)
    command = [str(work / f"fuzz_{name}"), *OPTIONS, *limit,
               f"-dict={work}/seeds/words.dict", f"-artifact_prefix={work}/found/{name}-",
               *(str(one) for one in folders if one.is_dir())]
    return subprocess.run(command, env={**os.environ, **ENVIRONMENT}).returncode == 0


def run_python(name: str, limit: list[str], work: Path) -> bool:
    """Run the cases of a Python reader; return True if there was no finding."""
    limit = limit or ["--seed", str(SEED), "--cases", str(HARNESSES[name])]
    command = [sys.executable, str(HERE / "readers.py"), name, *limit, "--keep", str(work / "found")]
    return subprocess.run(command).returncode == 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description="Fuzz what reads foreign bytes.")
    parser.add_argument("harnesses", nargs="*", metavar="HARNESS", help=", ".join(HARNESSES))
    parser.add_argument("--seconds", type=int, default=0, help="for each, with cases that are new each time")
    parser.add_argument("--full", action="store_const", const=3600, dest="seconds", help="an hour for each")
    parser.add_argument("--work", type=Path, default=ROOT / "build/fuzz", help="for what is built and found")
    choice = parser.parse_args(arguments)
    names: list[str] = choice.harnesses or list(HARNESSES)
    unknown = [name for name in names if name not in HARNESSES]
    if unknown:
        parser.error(f"no harness {unknown[0]}; there are: {', '.join(HARNESSES)}")
    work: Path = choice.work.resolve()
    (work / "found").mkdir(parents=True, exist_ok=True)
    in_c = [name for name in names if name not in IN_PYTHON]
    if in_c:
        import seeds

        build(work, in_c)
        seeds.write(work / "seeds")

    def passed(name: str) -> bool:
        print(f"{name}: {f'{choice.seconds} s' if choice.seconds else f'{HARNESSES[name]:,} cases'}", flush=True)
        if name in IN_PYTHON:
            limit = ["--seconds", str(choice.seconds), "--seed", str(random.randrange(1 << 30))]
            return run_python(name, limit if choice.seconds else [], work)
        return run_c(name, [f"-max_total_time={choice.seconds}"] if choice.seconds else [], work)

    with ThreadPoolExecutor(SIDE_BY_SIDE if choice.seconds >= 3600 else 1) as threads:
        failed = [name for name, good in zip(names, threads.map(passed, names), strict=True) if not good]
    print(f"findings of: {', '.join(failed)}" if failed else f"nothing found by {', '.join(names)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
