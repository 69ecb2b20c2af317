"""The folders of acl/sim have an order: none includes a header of a later one or uses a symbol of it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".ci"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "c"))
import programs
import sim_rooms

ROOT = sim_rooms.SIM.parents[1]


def objects(folder: Path) -> Path:
    """Return a folder with the objects of all sources: of an existing build, or compiled now."""
    wanted = [Path(name).with_suffix(".o") for name in sim_rooms.sources() if name.endswith(".c")]
    for found in sorted((ROOT / "build").glob("simulator-*/.objects-*")):
        if all((found / name).exists() for name in wanted):
            return found
    return programs.simulator(folder, "debug")[0] / ".objects-debug"


def test_folder_of_the_simulator_includes_no_header_of_a_higher_one() -> None:
    assert sim_rooms.includes() == []


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
def test_folder_of_the_simulator_calls_no_function_of_a_higher_one(tmp_path: Path) -> None:
    assert sim_rooms.symbols(objects(tmp_path)) == []


def test_files_are_ranked_by_their_room() -> None:
    names = ["generated/exports.h", "base/core.h", "streams/stream.c", "memory/memory.c", "generated/exports.c"]
    ranks = [sim_rooms.rank(name) for name in names]
    assert ranks == sorted(ranks) and ranks[1] < ranks[2] < ranks[3] < ranks[4]


def test_design_page_names_the_order_of_rooms() -> None:
    page = " ".join((ROOT / "docs/design-simulator.md").read_text().split())
    assert f"in one order: {', '.join(sim_rooms.ROOMS)}. " in page
