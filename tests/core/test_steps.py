"""The fallback steps: the table in the code, and the texts and types that must agree with it."""

import re
from pathlib import Path

from acl.inside._snapshot import RUNG_WORDS

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "acl" / "core"                # the sources: an installed package does not have them


def test_design_page_lists_steps_in_the_order_of_the_table() -> None:
    code = re.search(r"^steps\[:\] = \[([^\]]*)\]", (CORE / "_climb.pyx").read_text(), re.M)
    page = (ROOT / "docs" / "design.md").read_text()
    assert code is not None
    assert re.findall(r"^\| `(step_\w+)` ", page, re.M) == re.findall(r"\w+", code[1])


def test_sources_of_memory_are_named_in_the_order_of_the_core() -> None:
    listed = re.search(r"^cdef enum Rung:.*\n((?:    \w+.*\n)+)", (CORE / "types.pxd").read_text(), re.M)
    assert listed is not None
    names = [name.removeprefix("RUNG_").lower() for name in re.findall(r"^    (\w+)", listed[1], re.M)]
    assert names == [*RUNG_WORDS, "rungs"]
