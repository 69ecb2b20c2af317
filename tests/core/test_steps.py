"""The fallback steps, and the names of the sources of memory."""

import re
from pathlib import Path

import acl
from acl.inside._snapshot import RUNG_WORDS

CORE = Path(acl.__file__).parent / "core"


def test_sources_of_memory_are_named_in_the_order_of_the_core() -> None:
    listed = re.search(r"^cdef enum Rung:.*\n((?:    \w+.*\n)+)", (CORE / "types.pxd").read_text(), re.M)
    assert listed is not None
    names = [name.removeprefix("RUNG_").lower() for name in re.findall(r"^    (\w+)", listed[1], re.M)]
    assert names == [*RUNG_WORDS, "rungs"]
