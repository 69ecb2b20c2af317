"""`python -m tools.site FOLDER`: build the site there, strictly, and check it; exit status 1 if something is wrong."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site import check, pictures
from tools.site.sources import ROOT

__all__ = ["build", "main"]

CONFIG = Path(__file__).with_name("mkdocs.yml")


def build(folder: Path, drawn: Path | None, docs: Path = ROOT / "docs") -> subprocess.CompletedProcess[str]:
    """Run mkdocs on the pages of `docs`.  `drawn` has the gallery's files; None leaves the gallery out."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                   "ACL_BACKEND": "sim", "NO_MKDOCS_2_WARNING": "1", "ACLPOOL_SITE_DOCS": str(docs)}
    if drawn is not None:
        environment["ACLPOOL_SITE_PICTURES"] = str(drawn)
    return subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file",
                           str(CONFIG), "--site-dir", str(folder.resolve())], cwd=ROOT, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def main() -> int:
    """Run the command. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to put the site; what is there is replaced")
    parser.add_argument("--no-pictures", action="store_true", help="leave the gallery out")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="keep the gallery's files there, and take "
                        "those that are there")
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="aclpool-site-"))
    try:
        drawn = None if arguments.no_pictures else arguments.pictures or scratch
        if drawn is not None:
            pictures.draw(drawn)
        done = build(arguments.folder, drawn)
    finally:
        shutil.rmtree(scratch)
    if done.returncode != 0:
        print(done.stdout)
        return 1
    complaints = check.complaints(arguments.folder)
    print("\n".join(complaints) or f"site: {len(list(arguments.folder.rglob('*.html')))} pages in {arguments.folder}, "
          "no broken link")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
