"""The arena's lock by itself, in C: `tests/c/core_lock.c`, with and without the bias.

`python tests/c/run_tsan.py` runs the same program under ThreadSanitizer.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "c"))
import programs


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lock")
    libraries, headers = programs.simulator(folder, programs.mode())
    return programs.compile_program(programs.HERE / "core_lock.c", folder, libraries, headers, programs.mode())


@pytest.mark.parametrize("bias", ["0", "1"])
def test_sections_exclude_each_other_while_owners_change(program: Path, bias: str) -> None:
    environment = {**os.environ, **programs.environment(programs.mode()), "ACL_POOL_BIAS": bias}
    done = subprocess.run([str(program)], capture_output=True, text=True, env=environment, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
