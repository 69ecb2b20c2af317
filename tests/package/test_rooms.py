"""The subpackages have an order: at its top, a module imports only from subpackages below its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".ci"))
import package_rooms

SOURCES = sorted(path for kind in ("py", "pyx", "pxd") for path in (package_rooms.ROOT / "acl").rglob(f"*.{kind}"))


def test_package_imports_go_down() -> None:
    assert {path: found for path in SOURCES if (found := package_rooms.complaints(path))} == {}


@pytest.mark.parametrize(("module", "text"), [
    ("core._driver", "from acl.pool._refusals cimport books\n"),
    ("core._arena", "from acl.core cimport _guard\n"),
    ("core._bins", "from acl._core cimport is_arena\n"),
    ("runtime._buffer", "from acl import rt\nfrom acl.pool import (\n    _pool,\n)\n"),
    ("inside._books", "import acl.tools.cli\n"),
    ("inside._books", "from acl.pyacl._call cimport take\n"),
])
def test_import_upwards_is_refused(module: str, text: str) -> None:
    assert package_rooms.wrong(module, text)


@pytest.mark.parametrize(("module", "text"), [
    ("pool._pool", "from acl.core._arena cimport pool_arena\n"),
    ("pool._sleep", "from acl.inside._snapshot import readable\n"),
    ("pool._pool", "def f():\n    from acl.inside import _books\n"),
    ("_core", "from acl.core._arena cimport pool_arena\n"),
    ("torch", "from acl.adapters.pluggable import _door\n"),
])
def test_import_downwards_or_in_function_is_allowed(module: str, text: str) -> None:
    assert package_rooms.wrong(module, text) == []


def test_field_of_another_module_is_not_written() -> None:
    text = "    arena.maps.shadows += 1\n"
    assert package_rooms.groups()["maps"] > {"core._frames"}
    assert list(package_rooms.written("core._frames", text)) == []
    assert list(package_rooms.written("core._tally", text)) != []
