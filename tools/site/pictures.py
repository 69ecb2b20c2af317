"""Draw the gallery: pages and pictures of `view`, `top`, the demo and the benchmarks, from runs made for it.

All runs are small and on the simulator. Each build measures again, so the gallery's numbers differ between builds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.site.sources import ROOT

__all__ = ["draw"]

#: A service that is recorded: weights, a cache that grows, requests of changing length on two streams.
RECORDED = """
import subprocess
import sys

import numpy as np

import aclpool as acl
from acl.tools.demo.models import encoder

with acl.Pool(device=0, limit="64MiB", name="service") as pool, acl.Stream(0) as first, acl.Stream(0) as second:
    recording = pool.record(stacks="python")
    with pool.tag("weights"):
        weights = [pool.alloc("2MiB") for _ in range(6)]
    model = acl.Model(encoder().to_bytes())
    pages = []
    for stream in (first, second):
        pool.register(stream)
    for step in range(60):
        stream = (first, second)[step % 2]
        length = 20 + 37 * step % 300
        model(np.ones((1, length, 64), "float32"), np.ones((1, length), "float32"), stream=stream)
        with pool.tag("cache"):
            pages.append(pool.alloc(256 << 10, stream))
        if len(pages) == 24:
            del pages[:12]
    recording.stop()
    recording.save(sys.argv[1])
    acl.serve_top()
    with open(sys.argv[2], "w") as file:
        subprocess.run([sys.executable, "-m", "aclpool", "top", "--once", "--interval", "0"], stdout=file, check=True)
    model.close()
    for stream in (first, second):
        pool.unregister(stream)
    del weights, pages
"""
#: The page; the text in braces is filled in.
GALLERY = Path(__file__).with_name("gallery.md")
REQUESTS = 80


def command(*arguments: str, folder: Path, **environment: str) -> str:
    """Run Python with these arguments on the simulator, in a folder. Return what it printed.

    Raises
    ------
    RuntimeError
        With the command's messages, if it failed.
    """
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "ACL_BACKEND": "sim", **environment})
    if done.returncode != 0:
        raise RuntimeError(f"the gallery's run of {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout.rstrip()


def draw(folder: Path) -> None:
    """Make gallery.md and its files in a folder, unless gallery.md exists there."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "gallery.md").exists():
        return
    with tempfile.TemporaryDirectory(prefix="aclpool-gallery-") as name:
        scratch = Path(name)
        (scratch / "service.py").write_text(RECORDED)
        command("service.py", "run.npz", "top.txt", folder=scratch, ACL_POOL_TOP_DIR=name)
        command("-m", "aclpool", "view", "-q", f"{name}/run.npz", "--title", "a service", "-o", "view.html",
                "--plot", "view.svg", folder=folder)
        demo = command("-m", "aclpool", "demo", "--requests", str(REQUESTS), "--output", "demo.html", folder=folder)
        command("-m", "aclpool", "bench", "--quick", "--peers", "glibc,ctypes", "--workloads", "W1,W2,W5",
                "--rounds", "1", "--plot", "pairs.svg", "--plot-memory", "memory.svg", folder=folder)
        top = (scratch / "top.txt").read_text().rstrip()
    text = GALLERY.read_text(encoding="utf-8").format(top=top, demo=demo, requests=REQUESTS)
    (folder / "gallery.md").write_text(text)
