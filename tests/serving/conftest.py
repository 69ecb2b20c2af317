"""Makes the modules of the example service importable; they are not in a package."""

import sys
from importlib.util import find_spec
from pathlib import Path

from support.chromium import chromium

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/serving"))

# CI's lane `serving` has these packages and Chromium.
WANTED = ("starlette", "uvicorn", "prometheus_client")
served = all(map(find_spec, WANTED))
collect_ignore = [] if served else ["test_load.py"]
collect_ignore += [] if served and chromium() else ["test_memory_page.py"]
