"""Messages: each names the public call that failed, its arguments, and what was expected."""

from __future__ import annotations

import ctypes
import re
import threading

import pytest
from support.calls import api, out, table
from support.child import run_child
from support.models import sim_message

pytestmark = pytest.mark.usefixtures("device")

HEAD = re.compile(r"\[PID: \d+\] E[A-Z]\d{4}: (\w+) failed with (\d+): ")


def newest() -> str:
    return sim_message().split("\n")[0]


def test_message_about_a_null_pointer_gives_all_arguments_of_the_call() -> None:
    assert api.aclrtMemcpy(None, 16, 0x1000, 32, 1) == 100000
    assert newest().endswith(
        "aclrtMemcpy failed with 100000: argument check failed, expected: dst is not NULL; "
        "called with dst=NULL, destMax=16, src=0x1000, count=32, kind=1")


def test_messages_give_numbers_with_their_sign() -> None:
    assert api.aclrtSynchronizeStreamWithTimeout(None, -2) == 107000
    assert newest().endswith("called with stream=NULL, timeout=-2")


def test_error_messages_write_real_numbers_readably() -> None:
    made = api.aclmdlCreateAIPP(1)
    assert api.aclmdlSetAIPPDtcPixelMin(made, 0.5, 256.0, 1.0, 2.0, 0) == 100000
    assert "dtcPixelMinChn0=0.5, dtcPixelMinChn1=256, " in newest()
    assert api.aclmdlDestroyAIPP(made) == 0


def test_message_about_a_wrong_handle_names_the_expected_kind() -> None:
    assert api.aclmdlExecute(1, None, None) == 100000
    assert "expected: input is a live dataset; called with modelId=1, input=NULL" in newest()


def test_a_condition_that_ends_the_object_says_only_what_is_asked() -> None:
    assert api.aclmdlDestroyDataset(None) == 100000
    assert "expected: dataset is a live dataset; called" in newest()


def test_error_messages_leave_out_casts() -> None:
    assert api.aclrtGetGroupInfoDetail(api.aclrtCreateGroupInfo(), 0, 99, 0x1000, 8, 0x1000) == 100000
    assert "expected: attr <= " in newest()


def test_error_message_exists_for_a_call_that_returns_null() -> None:
    assert api.aclmdlCreateAIPP(0) is None
    assert HEAD.match(newest()).group(1) == "aclmdlCreateAIPP"  # type: ignore[union-attr]
    assert newest().endswith("; called with batchSize=0")


def test_message_of_an_internal_function_has_the_name_of_the_called_function() -> None:
    number = out(ctypes.c_uint32)
    assert api.aclmdlLoadFromFile(b"/nowhere.onnx", ctypes.byref(number)) == 145002
    assert HEAD.match(newest()).group(1) == "aclmdlLoadFromFile"  # type: ignore[union-attr]
    assert api.aclmdlLoadFromMem(b"no model", 8, ctypes.byref(number)) == 100013
    assert HEAD.match(newest()).group(1) == "aclmdlLoadFromMem"  # type: ignore[union-attr]
    assert api.aclopExecuteV2(b"NoSuchOperator", 0, None, None, 0, None, None, None, None) == 100024
    assert HEAD.match(newest()).group(1) == "aclopExecuteV2"  # type: ignore[union-attr]


def test_error_messages_of_earlier_calls_are_kept() -> None:
    assert api.aclrtFree(None) == 100000
    assert api.aclrtFreeHost(None) == 100000
    first, second = sim_message().split("\n")[:2]
    assert "aclrtFreeHost failed" in first
    assert "hostPtr=NULL" in first
    assert "aclrtFree failed" in second
    assert "devPtr=NULL" in second


def test_a_failure_without_a_message_does_not_take_the_one_before() -> None:
    assert api.aclrtFree(None) == 100000
    before = sim_message()
    assert api.aclrtSetDevice(0) == 0
    assert sim_message() == before


def test_error_messages_are_separate_for_each_thread() -> None:
    texts: list[str] = []

    def fail() -> None:
        api.aclrtFree(None)
        texts.append(newest())

    assert api.aclrtFreeHost(None) == 100000
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert "aclrtFree failed" in texts[0]
    assert "aclrtFreeHost failed" in newest()


# Functions that end the library or the state of a device.
SPARED = {"aclFinalize", "aclFinalizeReference", "aclrtResetDevice", "aclrtResetDeviceForce"}

SWEEP = """
import ctypes
from support.calls import api, table
from support.models import sim_message
api.aclInit(None)
assert api.aclrtSetDevice(0) == 0
for row in table()["functions"]:
    name = row["name"]
    if name in {spared!r} or row.get("variadic") or row["returns"] != "aclError":
        continue
    if not any("*" in p["type"] for p in row["params"]) or any(p["type"] in {by_value!r} for p in row["params"]):
        continue
    try:
        function = getattr(api, name)
    except AttributeError:
        continue
    print("calling", name, flush=True)
    before = sim_message()
    code = function(*[0] * len(row["params"]))
    after = sim_message()
    if code != 0 and after != before and f": {{name}} failed with {{code}}: " not in after.split("\\n")[0]:
        print("WRONG", name, code, after.split("\\n")[0])
print("done")
"""


def test_every_call_with_nothing_but_zeros_is_named() -> None:
    by_value = {row["name"] for row in table()["structs"]}
    done = run_child("-c", SWEEP.format(spared=SPARED, by_value=by_value))
    assert done.stdout.endswith("done\n"), done.stdout[-400:] + done.stderr
    assert not [line for line in done.stdout.splitlines() if line.startswith("WRONG")]


# ---- numbers of messages, and reading, which removes messages ----


@pytest.mark.parametrize(("call", "arguments", "code", "number"), [
    ("aclrtFree", (None,), 100000, "EH0008"),
    ("aclmdlDestroyDataset", (None,), 100000, "EH0008"),
    ("aclmdlDestroyDataset", (4096,), 100000, "EH0007"),
    ("aclrtMemcpy", (16, 8, 4096, 8, 99), 100000, "EH0007"),
    ("aclrtCreateStream", (None,), 100000, "EH0008"),
    ("aclrtLaunchHostFunc", (None, None, None), 107000, "EE1004"),
    ("aclrtMemcpy", (16, 8, 4096, 9, 1), 107000, "EE1003"),
    ("aclrtSetDevice", (1000,), 107001, "EE1003"),
    ("aclrtDestroyStream", (4096,), 107017, "EE1017"),
], ids=lambda value: str(value))
def test_the_number_of_a_message_tells_what_is_wrong(
    call: str, arguments: tuple[object, ...], code: int, number: str
) -> None:
    assert getattr(api, call)(*arguments) == code
    assert f"] {number}: {call} failed with {code}: " in newest()


def read() -> str | None:
    text = api.aclGetRecentErrMsg()
    return None if text is None else text.decode()


def test_error_messages_are_removed_by_reading() -> None:
    read()
    assert api.aclrtFree(None) == 100000
    assert api.aclrtFreeHost(None) == 100000
    text = read()
    assert text is not None and "aclrtFreeHost" in text and "aclrtFree " in text
    assert read() is None
    assert api.aclrtFree(None) == 100000
    again = read()
    assert again is not None and "aclrtFreeHost" not in again


def test_work_that_succeeds_leaves_no_message() -> None:
    read()
    stream = out()
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    assert read() is None
    assert api.aclrtDestroyStream(stream) == 0
    assert read() is None


def test_reading_a_message_without_a_context_says_that_the_context_is_missing() -> None:
    texts: list[str | None] = []
    thread = threading.Thread(target=lambda: texts.extend([read(), read()]))
    thread.start()
    thread.join()
    assert all(text is not None and "EE1018" in text for text in texts)
