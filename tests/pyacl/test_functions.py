"""Every function of pyACL: its arguments, results, failures, wrong types and signature.

The recording library reports the values that C received.  The expected values follow from the names and
the order of the parameters in the table of the C API, not from the generator's own binding.
"""

import inspect
import json
import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from support.child import run_child
from support.pyacl_calls import ASIDE, SURFACE, arguments, find, parts
from support.recorder import API, Row, build, gives

FUNCTIONS = {f["name"]: f for f in API["functions"]}
ROWS = {row["name"]: row for row in SURFACE}
NAMES = sorted(ROWS)
CALLED = [n for n in NAMES if not n.startswith("acl.util.") and n not in ASIDE]
FAILED = 207001
# These functions return without calling C, because their callable is not the last registered one, or was not
# registered.
NOT_CALLED = {n for n in NAMES if n.endswith(("unregister", "unregister_callback"))}
NUMBER = set("bBhHiIlLkKf")
# These functions refuse the descriptor, because allocator_create_desc did not make it.
NO_DESCRIPTOR = re.compile(r"acl\.rt\.allocator_set_\w+_func_to_desc")
# Functions with two C calls, or with results that no rule here describes; other tests call them by name.
OWN_RULES = {"acl.rt.get_group_info_detail", "acl.rt.get_stream_attribute", "acl.prof.get_op_type_v2",
             "acl.prof.get_op_name_v2", "acl.rt.mem_pool_get_attr", "acl.mdl.ri_capture_thread_exchange_mode"}


def same(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def run(library: Path, status: int) -> Row:
    """Call every function in a process whose ACL is the recording library; return what each call did."""
    script = Path(__file__).parents[1] / "support/pyacl_calls.py"
    done = run_child(str(script), str(library), str(status), ACL_LIBRARY=str(library))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("recorder"))


@pytest.fixture(scope="session")
def success(library: Path) -> Row:
    return run(library, 0)


@pytest.fixture(scope="session")
def failure(library: Path) -> Row:
    return run(library, FAILED)


def number_of(value: Any, size: int) -> int:
    """Return a number as C holds it in `size` bytes, as an unsigned integer."""
    if isinstance(value, float):
        return int.from_bytes(struct.pack("<f", value), "little")
    return int(value) & ((1 << 8 * size) - 1)


def matched(names: list[str], c_params: list[Row], wanted: list[bool]) -> dict[str, int]:
    """Return, for each name, the C parameter with this name, else the next C parameter that no name has."""
    by_name = {same(p["name"]): i for i, p in enumerate(c_params) if wanted[i]}
    found = {n: by_name[same(n)] for n in names if same(n) in by_name}
    rest = [i for i in range(len(c_params)) if wanted[i] and i not in found.values()]
    for n in names:
        if n not in found:
            found[n] = rest.pop(0)
    return found


def given_values(row: Row, seen: Row) -> list[tuple[str, str, Any]]:
    return [(*parts(p)[:2], v) for p, v in zip(row["params"], seen["given"], strict=True)]


def check_arguments(name: str, success: Row) -> None:
    """Check that numbers and strings reach the C parameters of their names, in their order."""
    row, seen = ROWS[name], success[name]
    assert "raised" not in seen, seen
    if name in NOT_CALLED or name in OWN_RULES:
        return
    assert seen["call"]["name"] == row["c"]
    c_params = FUNCTIONS[row["c"]]["params"]
    values = seen["call"]["seen"]
    inputs = [not gives(p) for p in c_params]
    numbers = [(n, v) for n, k, v in given_values(row, seen) if k in NUMBER]
    texts = [v for _, k, v in given_values(row, seen) if k in ("s", "z", "s+")]
    assert [v["text"] for v in values if v["text"].startswith("text")] == texts
    recorded = [v["value"] for v, is_input in zip(values, inputs, strict=False) if is_input]
    if not re.search(r"max_num|dim_range_num", " ".join(row["params"])):
        expected = {number_of(v, 8) for _, v in numbers}
        assert expected <= {*recorded, *(v["peek"] & 0xFFFFFFFF for v in values)}
    by_name = {same(p["name"]): v for p, v in zip(c_params, values, strict=False) if not gives(p)}
    for n, v in numbers:
        if same(n) in by_name and by_name[same(n)]["peek"] == 0:
            assert by_name[same(n)]["value"] == number_of(v, by_name[same(n)]["size"]), n
    in_order = [r for r in recorded if r in {number_of(v, 8) for _, v in numbers}]
    assert in_order == [number_of(v, 8) for _, v in numbers if number_of(v, 8) in in_order]


def check_lists(name: str, success: Row) -> None:
    """Check that a list reaches C as its elements."""
    row, seen = ROWS[name], success[name]
    if not any("[" in p for p in row["params"]):
        return
    values = seen["call"]["seen"]
    lists = [(k, v) for _, k, v in given_values(row, seen) if k[0] == "[" and k[1] in "LkiI" and k != "[[L]]"]
    for kind, given in lists:
        first = given[0][0] if kind == "[LL]" else given[0]
        size = 8 if kind[1] in "Lk" else 4
        assert any(v["peek"] & ((1 << 8 * size) - 1) == first for v in values), (kind, given)


def check_results(name: str, success: Row) -> None:
    """Check that each value that C wrote is returned at the place of its parameter's name."""
    row, seen = ROWS[name], success[name]
    if name in NOT_CALLED or name in OWN_RULES or NO_DESCRIPTOR.fullmatch(name):
        return
    names = [r.split(":") for r in row["returns"]]
    assert len(seen["result"]) == max(len(names), 1)
    assert seen["tuple"] == (len(names) > 1)
    if FUNCTIONS[row["c"]]["returns"] == "aclError":
        assert seen["result"][-1] == 0
        names = names[:-1]
        check_written(row, [(n, k) for n, k in names], seen)
    elif names:
        expected = {"s": "named", "f": 2.5}.get(names[0][1], 0x5EED)
        assert seen["result"] == [expected]
    else:
        assert seen["result"] == [None]


def check_written(row: Row, names: list[tuple[str, str]], seen: Row) -> None:
    """Check that each result is the value that C wrote to the parameter of its name, or of its place."""
    c_params = FUNCTIONS[row["c"]]["params"]
    written = [gives(p) for p in c_params]
    place = matched([n for n, k in names if k != "=" and k != "O"], c_params, written)
    echoes = {p.split(":")[0]: v for p, v in zip(row["params"], seen["given"], strict=True)}
    for (name, kind), value in zip(names, seen["result"], strict=False):
        if kind == "=":
            assert value == echoes[name]
        elif kind == "f":
            assert number_of(value, 4) == 1000 + place[name]
        elif kind in NUMBER:
            assert value == 1000 + place[name], name
        elif kind.startswith("s@"):
            assert value == "A"
        elif kind[0] in "[{":
            assert value


def check_failure(name: str, failure: Row) -> None:
    """Check that a failed call returns its status last, and no value that C did not write."""
    row, seen = ROWS[name], failure[name]
    if name == "acl.rt.get_group_info_detail":
        assert seen["raised"] == "RuntimeError"
        return
    assert "raised" not in seen, seen
    if FUNCTIONS[row["c"]]["returns"] != "aclError" or name in NOT_CALLED:
        return
    assert seen["result"][-1] == FAILED
    assert seen["tuple"] == (len(row["returns"]) > 1)
    echoes = {p.split(":")[0]: v for p, v in zip(row["params"], seen["given"], strict=True)}
    for spelled, value in zip(row["returns"][:-1], seen["result"], strict=False):
        name, kind = spelled.split(":")
        empty = {"=": [echoes.get(name)], "{": [{}, None], "[": [[], None], "s": ["", None]}
        assert value in empty.get(kind[0], [0]), spelled


def check_gil(name: str, success: Row) -> None:
    """Check that the GIL is released around every call, except where the table says that it is held."""
    if name not in NOT_CALLED and name != "acl.rt.allocator_create_desc":
        assert success[name]["call"]["gil"] == (ROWS[name].get("gil") == "held")


def test_functions_that_can_wait_or_call_back_release_the_gil() -> None:
    held = {name for name, row in ROWS.items() if row.get("gil") == "held"}
    waits = re.compile(r"malloc|free|memcpy(?!_desc)|memset|synchron|execute|launch|load|reset_device|finalize|"
                       r"destroy_(stream|context|event)$|init$|process|register|wait")
    assert [name for name in sorted(held) if waits.search(name)] == []


def wrong(kind: str) -> Any:
    """Return a value that the kind does not accept."""
    return 7 if kind in ("s", "z", "s+") else object()


def check_wrong_types(name: str) -> None:
    """Check that a wrong type at any place raises a TypeError with the message of CANN's module."""
    row = ROWS[name]
    function = find(name)
    kinds = [parts(p)[1] for p in row["params"]]
    good = arguments(row)
    for i, kind in enumerate(kinds):
        if kind == "O":
            continue        # other tests check these kinds by name, because each function accepts different objects
        with pytest.raises((TypeError, ValueError)) as caught:
            function(*good[:i], wrong(kind), *good[i + 1:])
        if kind[0] not in "[{" and "cfg:" not in kind and "_" not in kind:
            assert caught.type is TypeError
            assert str(caught.value) == f"{name} args parse failed"


def check_wrong_counts(name: str) -> None:
    """Check that one argument too many or too few raises a TypeError."""
    row = ROWS[name]
    good = arguments(row)
    with pytest.raises(TypeError, match=f"^{re.escape(name)} args parse failed$"):
        find(name)(*good, 1)
    if not any(p.endswith("?") for p in row["params"]):
        with pytest.raises(TypeError, match=f"^{re.escape(name)} args parse failed$"):
            find(name)(*good[:-1])


def check_introspection(name: str) -> None:
    """Check that signature, module, docstring and dir() name the function as the table does."""
    row, function = ROWS[name], find(name)
    signature = inspect.signature(function)
    if row["params"]:
        assert list(signature.parameters) == [p.split(":")[0] for p in row["params"]]
    else:
        assert [p.kind for p in signature.parameters.values()] == [inspect.Parameter.VAR_POSITIONAL]
    assert function.__module__ == name.rpartition(".")[0]
    assert function.__doc__.startswith((*(r.split(":")[0] for r in row["returns"]), name))
    module = sys.modules["acl" if name.count(".") == 1 else function.__module__]
    assert name.rpartition(".")[2] in dir(module)


@pytest.mark.parametrize("name", NAMES)
def test_pyacl_function_checks_arguments_and_returns_results(name: str, success: Row, failure: Row) -> None:
    check_introspection(name)
    if ROWS[name]["params"]:
        check_wrong_types(name)
        check_wrong_counts(name)
    if name in CALLED:
        check_arguments(name, success)
        check_lists(name, success)
        check_results(name, success)
        check_failure(name, failure)
        check_gil(name, success)
