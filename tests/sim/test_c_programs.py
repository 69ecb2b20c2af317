"""C programs that use the names of the headers: each compiles, runs on the simulator, and prints nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "c"))
import programs


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return programs.simulator(tmp_path_factory.mktemp("sim"), programs.mode())


@pytest.mark.parametrize("source", programs.programs(), ids=lambda path: path.stem)
def test_program_passes(source: Path, simulator: tuple[Path, Path], tmp_path: Path) -> None:
    how = programs.mode()
    made = programs.compile_program(source, tmp_path, *simulator, how)
    done = subprocess.run([str(made)], capture_output=True, text=True, env=programs.environment(how),
                          timeout=programs.TIMEOUT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
