"""docs/serving.md: its snippet runs from a checkout's root, as the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import acl

ROOT = Path(__file__).parents[2]


def test_the_snippet_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/serving.md").read_text(), re.S)
    # The root has the sources of acl, perhaps not built: the package under test comes first.
    path = os.pathsep.join([str(Path(acl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-P", "-c", code] if sys.version_info >= (3, 11) else
                          [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_it_names_is_there() -> None:
    text = (ROOT / "docs/serving.md").read_text()
    for name in re.findall(r"^\| `(\S+)` \|", text, re.M):
        assert (ROOT / "examples/serving" / name).is_file(), name
    for link in re.findall(r"\]\(\.\./([^)]+)\)", text):
        assert (ROOT / link).exists(), link
