"""Operations of a pool take about as many instructions with many objects as with few: a part of bench/cost.py."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "cost.py"

pytestmark = [
    pytest.mark.release_only,
    pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed"),
]


@pytest.fixture(scope="module")
def cost() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_cost", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module             # needed by the dataclass that the module defines
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("operation", "small", "large", "most"), [
    ("miss-waiting", 10, 1000, 1.5), ("shared", 10, 1000, 1.5), ("miss-streams", 2, 10, 2.0),
    ("medium", 100, 10_000, 1.5), ("order-small", 100, 1000, 1.5),
])
def test_instructions_of_an_operation_at_most_double_with_the_number_of_blocks_or_streams(
        cost: ModuleType, operation: str, small: int, large: int, most: float) -> None:
    """A miss may take twice the instructions, because with more than 8 streams it looks at 12 other arenas."""
    counted = cost.count([operation], (small, large))[operation]
    assert counted[1][1] < most * counted[0][1], counted
