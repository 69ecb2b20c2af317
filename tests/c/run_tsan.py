"""Run the C programs under ThreadSanitizer: `python tests/c/run_tsan.py [NAME ...]`.

`ACLPOOL_SIM_MODE` may name another build (asan).  Prints a line for each program; exit status 1 if
one failed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import programs


def main(names: list[str]) -> int:
    """Build the simulator once, then build and run each program; return the exit status."""
    how = programs.mode() or "tsan"
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        libraries, headers = programs.simulator(folder, how)
        for source in [*programs.programs(), *programs.programs("core_"), *programs.examples()]:
            if names and source.stem not in names:
                continue
            made = programs.compile_program(source, folder, libraries, headers, how)
            done = subprocess.run([str(made)], capture_output=True, text=True, env=programs.environment(how),
                                  timeout=programs.TIMEOUT_S * 3)
            failed += done.returncode != 0
            print(f"{source.stem}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
            if done.returncode != 0:
                print(done.stdout[-4000:], done.stderr[-12000:], sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
