"""The table of pyACL's functions has all functions of pyACL, and all C functions that they call."""

import inspect
import json
import re
import types

import pytest
from support.recorder import API, ROOT, Row

import acl

TABLE: Row = json.loads((ROOT / "tools/generate/pyacl_api.json").read_text())
ROWS = {row["name"]: row for row in TABLE["functions"]}
MODULES = ["rt", "mdl", "op", "util", "prof"]


def test_every_function_of_pyacl_is_there() -> None:
    assert len(TABLE["vendor_functions"]) == 398
    assert not set(TABLE["vendor_functions"]) - set(ROWS)


def test_every_c_function_is_reachable_or_out_of_scope_with_a_reason() -> None:
    aside = {h for scope in TABLE["out_of_scope"] for h in scope["headers"]}
    assert all(scope["reason"] for scope in TABLE["out_of_scope"])
    reached = {row["c"] for row in TABLE["functions"]}
    missing = [f["name"] for f in API["functions"] if f["name"] not in reached and f["header"] not in aside]
    assert missing == []


def test_function_names_of_the_table_are_unique() -> None:
    assert len(ROWS) == len(TABLE["functions"])


@pytest.mark.parametrize("module", MODULES)
def test_modules_have_exactly_the_tables_functions(module: str) -> None:
    found = getattr(acl, module)
    assert found.__name__ == f"acl.{module}"
    expected = {name.rpartition(".")[2] for name in ROWS if name.startswith(f"acl.{module}.")}
    # Unwrapped, because `acl.use_pool` wraps the functions that create and destroy streams.
    have = {n for n, v in vars(found).items() if isinstance(inspect.unwrap(v), types.BuiltinFunctionType)}
    assert have == expected == set(found.__all__)


def test_package_acl_has_the_functions_of_the_root() -> None:
    expected = {name[4:] for name in ROWS if re.fullmatch(r"acl\.\w+", name)}
    assert expected <= set(dir(acl)) and expected <= set(acl.__all__)
    assert all(isinstance(getattr(acl, name), types.BuiltinFunctionType) for name in expected)


def test_names_of_aclpool_do_not_collide_with_names_of_pyacl() -> None:
    pyacl = {name.split(".")[1] for name in ROWS} | set(TABLE["vendor_modules"])
    ours = {name for name in acl.__all__ if not isinstance(getattr(acl, name), types.BuiltinFunctionType)}
    assert not ours & (pyacl - set(MODULES))


def test_modules_of_the_vendor_are_not_provided_by_aclpool() -> None:
    assert not [name for name in TABLE["vendor_modules"] if name != "media" and hasattr(acl, name)]
    assert set(acl.media.__all__) == {"dvpp_free", "dvpp_malloc"}      # the functions that the simulator has
