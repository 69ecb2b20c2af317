"""Unpack packages of another Debian release or architecture into a folder, beside the system.

    python -m tools.release.debian FOLDER SUITE ARCHITECTURE PACKAGE...

The packages are unpacked with all that they depend on, from this Debian's servers and checked with its keys.  They
are not installed: FOLDER/root has the files.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main", "relocate", "unpack"]

SOURCES = Path("/etc/apt")
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def server() -> str:
    """Return the address from which this system gets Debian's packages."""
    for path in [SOURCES / "sources.list", *sorted((SOURCES / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        for line in path.read_text().splitlines():
            words = line.split()
            if words[:1] == ["URIs:"] or words[:1] == ["deb"]:
                address = next(word for word in words if "://" in word)
                if address.rstrip("/").endswith("/debian"):
                    return address
    raise SystemExit(f"no server of Debian's packages in {SOURCES}")


def unpack(folder: Path, suite: str, architecture: str, packages: Sequence[str]) -> Path:
    """Unpack the packages and their dependencies. Return the folder that corresponds to `/`."""
    apt, root = folder / "apt", folder / "root"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("lists/partial", "cache/archives/partial"):
        (apt / name).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [arch={architecture} signed-by={KEYS}] {server()} {suite} main\n")
    settings = {
        "APT::Architecture": architecture, "APT::Architectures": architecture, "APT::Install-Recommends": "false",
        "Acquire::Retries": "5", "Debug::NoLocking": "true", "Dir::Cache": apt / "cache",
        "Dir::Etc::PreferencesParts": "/dev/null", "Dir::Etc::SourceList": apt / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null", "Dir::State": apt, "Dir::State::Lists": apt / "lists",
        "Dir::State::Status": apt / "status",
    }
    command = ["apt-get", "-qq", *[word for name, value in settings.items() for word in ("-o", f"{name}={value}")]]
    subprocess.run([*command, "update"], check=True)
    subprocess.run([*command, "install", "-y", "--download-only", *packages], check=True)
    # The links that the package base-files has.
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as files:
            subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], stdin=files.stdout, check=True)
        if files.returncode != 0:
            raise SystemExit(f"{package.name}: dpkg-deb ended with {files.returncode}")
    shutil.rmtree(apt)
    return root


def relocate(root: Path, python: Path, patchelf: Path) -> None:
    """Let a Python in an unpacked folder run with the loader and libraries of that folder, and find its own pip."""
    loader = next((root / "usr/lib").glob("*/ld-linux*"))
    # --force-rpath: what the libraries load is found there, too.
    subprocess.run([patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", loader.parent, python],
                   check=True)
    # Debian's pyconfig.h includes that of the architecture from /usr/include.
    header = next((root / "usr/include").glob(f"*/{python.name}/pyconfig.h"))
    (root / "usr/include" / python.name / "pyconfig.h").write_text(f'#include "{header}"\n')
    for data in (root / "usr/lib" / python.name).glob("_sysconfigdata_*.py"):
        data.write_text(data.read_text().replace("'/usr/share/python-wheels", f"'{root}/usr/share/python-wheels"))


def main() -> int:
    """Run the command. Return the exit status."""
    parser = argparse.ArgumentParser(description="Unpack Debian packages into FOLDER/root.")
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("suite", metavar="SUITE")
    parser.add_argument("architecture", metavar="ARCHITECTURE")
    parser.add_argument("packages", metavar="PACKAGE", nargs="+")
    choice = parser.parse_args()
    print(unpack(choice.folder.resolve(), choice.suite, choice.architecture, choice.packages))
    return 0


if __name__ == "__main__":
    sys.exit(main())
