"""The example service's modules, which lie beside each other and are no package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples/serving"))
