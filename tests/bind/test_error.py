"""The exception for each status: its name, class, message and hint."""

import builtins
import json
import pickle
from pathlib import Path
from types import ModuleType

import pytest

import acl
from acl.bind import _error

TABLE = json.loads((Path(__file__).parents[2] / "tools/generate/acl_api.json").read_text())


@pytest.mark.parametrize("row", TABLE["errors"], ids=lambda row: row["name"])
def test_every_code_has_a_name_of_the_headers(row: dict[str, object]) -> None:
    same = {other["name"] for other in TABLE["errors"] if other["value"] == row["value"]}
    assert _error.error_name(row["value"]) in same


def test_error_code_0_is_named_acl_success() -> None:
    assert _error.error_name(0) == "ACL_SUCCESS"


def test_error_code_without_a_name_is_called_unknown() -> None:
    assert _error.error_name(123456) == "unknown"


@pytest.mark.parametrize(
    ("code", "kind", "also"),
    [
        (207001, acl.OutOfMemoryError, MemoryError),
        (207018, acl.OutOfMemoryError, MemoryError),
        (207000, acl.NotSupportedError, RuntimeError),
        (100000, acl.InvalidArgumentError, ValueError),
        (107000, acl.InvalidArgumentError, ValueError),
        (107017, acl.InvalidArgumentError, ValueError),
        (507046, acl.TimeoutError, builtins.TimeoutError),
        (507047, acl.TimeoutError, builtins.TimeoutError),
    ],
)
def test_error_codes_that_callers_treat_differently_have_classes(
    code: int, kind: type[acl.AclError], also: type[Exception]
) -> None:
    error = _error.error_for(code, "aclrtX", "because")
    assert type(error) is kind
    assert isinstance(error, acl.AclError)
    assert isinstance(error, also)


def test_error_code_without_a_class_gives_a_plain_acl_error() -> None:
    assert type(_error.error_for(507015, "aclrtX", "")) is acl.AclError


def test_error_has_its_attributes_and_mentions_them_in_its_text() -> None:
    error = _error.error_for(107002, "aclrtMalloc", "the runtime's words")
    assert (error.code, error.name, error.function) == (
        107002,
        "ACL_ERROR_RT_CONTEXT_NULL",
        "aclrtMalloc",
    )
    assert error.message == "the runtime's words"
    assert "Device(n).use()" in error.hint
    for part in (
        "aclrtMalloc",
        "ACL_ERROR_RT_CONTEXT_NULL",
        "107002",
        "the runtime's words",
        error.hint,
    ):
        assert part in str(error)


def test_error_text_has_the_newest_message_only() -> None:
    error = _error.error_for(107000, "aclrtX", "[PID: 1] new\nmore\n[PID: 1] old")
    assert "new\nmore" in str(error)
    assert "old" not in str(error)
    assert "old" in error.message


@pytest.mark.parametrize("code", [107002, 207001, 207000, 100000, 507046])
def test_errors_survive_pickling(code: int) -> None:
    error = _error.error_for(code, "aclrtX", "why")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.code, again.function, again.message, str(again)) == (
        code,
        "aclrtX",
        "why",
        str(error),
    )


def test_error_has_the_message_of_the_runtime(sim: ModuleType) -> None:
    with pytest.raises(acl.OutOfMemoryError) as raised:
        acl.Buffer(1 << 50)
    assert "1125899906842" in raised.value.message
    assert raised.value.function == "aclrtMalloc"


def test_error_hints_exist_only_for_known_codes() -> None:
    assert set(_error.HINTS) <= {row["value"] for row in TABLE["errors"]}
    assert set(_error.CLASSES) <= {row["value"] for row in TABLE["errors"]}
