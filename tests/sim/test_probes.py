"""The simulator answers the probes as the code of the real runtime did."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import acl.sim

sys.path.insert(0, str(Path(__file__).resolve().parent))
import compare_probes


def test_golden_file_has_an_answer_for_every_probe() -> None:
    kinds = [kind for file in compare_probes.SCRIPTS.values() for kind, _ in compare_probes.golden(file).values()]
    assert (kinds.count("must"), kinds.count("depends"), kinds.count("may")) == (399, 128, 28)


@pytest.mark.subprocess_heavy
@pytest.mark.skipif(compare_probes.sanitized(), reason="the probes fork too often for a sanitizer")
def test_simulator_meets_every_required_line_of_the_golden_file() -> None:
    count, differences = compare_probes.compare(Path(acl.sim.library_dir()), kind="must")
    assert differences == []
    assert count == 399
