"""A missing wait between two streams, found without a device: the simulator checks the order of their work.

One stream fills a batch, another one computes on it.  Without the event between them the result is nearly always
right, because the fill is quick.  This program starts itself twice under `aclpool sim run --races`: with the event
there is no report, without it the report names the two lines.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("ACL_BACKEND", "sim")

import aclpool as acl


def work(waits: bool) -> None:
    """Fill a batch on one stream and copy it on another, which waits for the fill if `waits`."""
    with acl.Pool(0) as pool, acl.Stream(0) as loader, acl.Stream(0) as compute:
        pool.register(loader)
        pool.register(compute)
        batch, result = pool.alloc(4096, loader), pool.alloc(4096, compute)
        acl.fill(batch, 7, stream=loader, wait=False)
        if waits:
            compute.wait_event(loader.record())
        acl.copy_async(result, batch, stream=compute)  # without the event, nothing orders the copy
        compute.synchronize()
        loader.synchronize()


def checked(variant: str, folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """Run this program under the checker. Return its exit code and the findings."""
    found = folder / f"{variant}.json"
    command = [sys.executable, "-m", "acl.tools.cli", "sim", "run", "--races", "--json", str(found), "--",
               sys.executable, __file__, variant]
    code = subprocess.run(command).returncode
    return code, [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []


if __name__ == "__main__":
    if sys.argv[1:]:
        work(waits=sys.argv[1] == "waits")
    else:
        with tempfile.TemporaryDirectory() as name:
            assert checked("waits", Path(name)) == (0, [])
            code, found = checked("forgets", Path(name))
        assert code == 1
        (race,) = found
        print("found:", race["first"]["queued_at"][0], "and", race["second"]["queued_at"][0])
        assert (race["first"]["name"], race["second"]["name"]) == ("memset", "memcpy")
