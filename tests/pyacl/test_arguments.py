"""The argument rules of pyACL: which objects each kind accepts, and which value C gets."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.child import run_child, run_python
from support.recorder import build

import acl

# Calls whose last argument is of the kind; the value is an expression, because JSON cannot express some values.
CASES = [
    ("k", "acl.rt.free", "({},)", "-1", 2**64 - 1),
    ("k", "acl.rt.free", "({},)", "2**64", 0),
    ("k", "acl.rt.free", "({},)", "2**64 + 5", 5),
    ("k", "acl.rt.free", "({},)", "True", 1),
    ("k", "acl.rt.free", "({},)", "type('Number', (int,), {{}})(7)", 7),
    ("k", "acl.rt.free", "({},)", "None", TypeError),
    ("k", "acl.rt.free", "({},)", "1.0", TypeError),
    ("k", "acl.rt.free", "({},)", "'1'", TypeError),
    ("K", "acl.rt.set_op_execute_timeout_v2", "({},)", "-2", 2**64 - 2),
    ("K", "acl.rt.set_op_execute_timeout_v2", "({},)", "2**65 + 3", 3),
    ("K", "acl.rt.set_op_execute_timeout_v2", "({},)", "2.0", TypeError),
    ("i", "acl.rt.set_device", "({},)", "-1", 2**32 - 1),
    ("i", "acl.rt.set_device", "({},)", "numpy.int64(3)", 3),
    ("i", "acl.rt.set_device", "({},)", "numpy.uint8(4)", 4),
    ("i", "acl.rt.set_device", "({},)", "2**31", TypeError),
    ("i", "acl.rt.set_device", "({},)", "-2**31 - 1", TypeError),
    ("i", "acl.rt.set_device", "({},)", "1.0", TypeError),
    ("I", "acl.rt.set_op_wait_timeout", "({},)", "-1", 2**32 - 1),
    ("I", "acl.rt.set_op_wait_timeout", "({},)", "2**32 + 9", 9),
    ("I", "acl.rt.set_op_wait_timeout", "({},)", "numpy.int32(6)", 6),
    ("I", "acl.rt.set_op_wait_timeout", "({},)", "None", TypeError),
    ("l", "acl.rt.set_sys_param_opt", "(1, {})", "-5", 2**64 - 5),
    ("l", "acl.rt.set_sys_param_opt", "(1, {})", "numpy.int64(8)", 8),
    ("l", "acl.rt.set_sys_param_opt", "(1, {})", "2**63", TypeError),
    ("L", "acl.op.set_attr_int", "(1, 'x', {})", "-6", 2**64 - 6),
    ("L", "acl.op.set_attr_int", "(1, 'x', {})", "2**63", TypeError),
    ("b", "acl.mdl.set_aipp_ax_swap_switch", "(1, {})", "200", 200),
    ("b", "acl.mdl.set_aipp_ax_swap_switch", "(1, {})", "256", TypeError),
    ("b", "acl.mdl.set_aipp_ax_swap_switch", "(1, {})", "-1", TypeError),
    ("B", "acl.op.set_attr_bool", "(1, 'x', {})", "True", 1),
    ("B", "acl.op.set_attr_bool", "(1, 'x', {})", "257", 1),
    ("h", "acl.mdl.set_aipp_dtc_pixel_mean", "(1, {}, 0, 0, 0, 0)", "-3", 2**16 - 3),
    ("h", "acl.mdl.set_aipp_dtc_pixel_mean", "(1, {}, 0, 0, 0, 0)", "40000", TypeError),
    ("H", "acl.float16_to_float", "({},)", "-1", 65535),
    ("H", "acl.float16_to_float", "({},)", "65536 + 4", 4),
    ("f", "acl.float_to_float16", "({},)", "1.0", 0x3F800000),
    ("f", "acl.float_to_float16", "({},)", "1", 0x3F800000),
    ("f", "acl.float_to_float16", "({},)", "numpy.float32(1)", 0x3F800000),
    ("f", "acl.float_to_float16", "({},)", "'1'", TypeError),
    ("s", "acl.op.set_model_dir", "({},)", "'dir'", "dir"),
    ("s", "acl.op.set_model_dir", "({},)", "'a\\0b'", TypeError),
    ("s", "acl.op.set_model_dir", "({},)", "b'dir'", TypeError),
    ("s", "acl.op.set_model_dir", "({},)", "None", TypeError),
    ("s", "acl.op.set_model_dir", "({},)", "pathlib.Path('dir')", TypeError),
    ("s", "acl.op.set_model_dir", "({},)", "'\\udc80'", TypeError),
    ("s", "acl.init", "({},)", "None", TypeError),
    ("s", "acl.init", "({},)", "'conf'", "conf"),
    ("[L]", "acl.set_tensor_shape", "(1, {})", "(1, 2)", TypeError),
    ("[L]", "acl.set_tensor_shape", "(1, {})", "[1, 'a']", TypeError),
    ("[i]!", "acl.rt.ipc_mem_set_import_pid", "('key', {})", "7", ValueError),
    ("options", "acl.rt.binary_load_from_file", "('path', {})", "{{}}", ValueError),
    ("options", "acl.rt.binary_load_from_file", "('path', {})", "[1]", TypeError),
    ("cfg", "acl.rt.malloc_with_cfg", "(1, 0, {})", "{{'attrs': [], 'numAttrs': 1}}", KeyError),
    ("cfg", "acl.rt.malloc_with_cfg", "(1, 0, {})", "{{'attrs': [], 'numAttrs': 0}}", 0),
    ("timeout", "acl.rt.wait_and_reset_notify", "(1, 2, {})", "-1", TypeError),
    ("timeout", "acl.rt.wait_and_reset_notify", "(1, 2, {})", "2**32", TypeError),
    ("timeout", "acl.rt.wait_and_reset_notify", "(1, 2, {})", "2**32 - 1", 2**32 - 1),
    ("len", "acl.rt.ipc_mem_get_export_key", "(1, 2, {}, 0)", "1024", ValueError),
    ("callable", "acl.rt.launch_callback", "({}, [], 0, 0)", "7", TypeError),
    ("callable", "acl.util.start_thread", "({}, [])", "None", TypeError),
]

SCRIPT = """
import json, pathlib, sys
sys.path.insert(0, {tests!r})
import numpy
from support.recorder import Recorder
import acl
recorder = Recorder({library!r})
found = []
for name, call in json.load(sys.stdin):
    recorder.forget()
    try:
        eval(name + call)
        seen = recorder.last()["seen"]
        found.append([[s["value"], s["text"]] for s in seen])
    except Exception as error:
        found.append([type(error).__name__, str(error)])
print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Run all cases; return for each the values that C received, or the exception."""
    library = build(tmp_path_factory.mktemp("recorder"))
    calls = [(name, call.format(value.replace("{{", "{").replace("}}", "}"))) for _, name, call, value, _ in CASES]
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]), library=str(library))
    done = run_child("-c", script, text=json.dumps(calls), ACL_LIBRARY=str(library))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c[0]}-{c[1]}-{c[3]}" for c in CASES])
def test_arguments_of_each_kind_are_converted_or_refused_as_in_pyacl(number: int, outcomes: list[Any]) -> None:
    kind, name, _, _, expected = CASES[number]
    found = outcomes[number]
    if isinstance(expected, type):
        assert found[0] == expected.__name__, found
        if expected is TypeError and kind in "kKiIlLbBhHfs":
            assert found[1] == f"{name} args parse failed"
    elif isinstance(expected, str):
        assert found[-1][1] == expected
    else:
        assert expected in [seen[0] for seen in found]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="CPython 3.14 takes __index__ for unsigned kinds")
@pytest.mark.parametrize("value", [np.int64(4), np.uint64(4)])
def test_unsigned_arguments_must_be_real_ints(value: np.integer) -> None:
    with pytest.raises(TypeError, match=r"^acl\.rt\.malloc args parse failed$"):
        acl.rt.malloc(value, 0)


def test_cause_of_an_argument_error_names_the_argument_and_the_reason() -> None:
    with pytest.raises(TypeError) as caught:
        acl.rt.malloc(64, "huge")
    assert str(caught.value.__cause__) == "argument 2 (policy): expected an int of 32 bits, got 'huge' of type str"
    with pytest.raises(TypeError) as caught:
        acl.rt.malloc(64)
    assert str(caught.value.__cause__) == "argument 2 (policy) is missing"
    with pytest.raises(TypeError) as caught:
        acl.rt.malloc(64, 0, 0)
    assert str(caught.value.__cause__) == "at most 2 arguments are taken, more were given"


def test_pyacl_functions_accept_keyword_arguments() -> None:
    assert acl.create_data_buffer(size=8, data=16) != 0
    buffer = acl.create_data_buffer(64, size=8)
    assert acl.get_data_buffer_addr(data_buffer=buffer) == 64
    assert acl.get_data_buffer_size_v2(buffer) == 8


@pytest.mark.parametrize(("call", "cause"), [
    (lambda: acl.rt.malloc(64, police=0), "there is no parameter 'police'"),
    (lambda: acl.rt.malloc(64, 0, size=1), "parameter 'size' was given twice"),
    (lambda: acl.rt.malloc(policy=0), "argument 1 (size) is missing"),
])
def test_wrong_keyword_arguments_raise_a_type_error(call: Any, cause: str) -> None:
    with pytest.raises(TypeError, match=r"^acl\.rt\.malloc args parse failed$") as caught:
        call()
    assert str(caught.value.__cause__) == cause


def test_functions_without_parameters_ignore_extra_arguments() -> None:
    acl.rt.set_device(0)
    assert acl.rt.get_device() == acl.rt.get_device(0) == acl.rt.get_device("x", 2) == (0, 0)
    assert acl.rt.synchronize_device(0) == 0
    with pytest.raises(TypeError):
        acl.rt.get_device(device=1)     # keywords are refused, as by CANN's own module


def test_pyacl_functions_can_be_pickled_hashed_and_imported_by_name() -> None:
    import pickle
    method = {"malloc": acl.rt.malloc}
    assert pickle.loads(pickle.dumps(method))["malloc"] is acl.rt.malloc
    assert pickle.loads(pickle.dumps(acl.init)) is acl.init
    assert hash(acl.rt.malloc) == hash(method["malloc"])
    namespace: dict[str, Any] = {}
    exec("from acl.rt import memcpy; from acl.mdl import *; import acl.util as util", namespace)
    assert namespace["memcpy"] is acl.rt.memcpy
    assert namespace["load_from_file"] is acl.mdl.load_from_file


def test_import_of_the_pyacl_modules_does_not_import_numpy() -> None:
    code = "import sys, acl; acl.util.bytes_to_ptr(b''); assert 'numpy' not in sys.modules"
    done = run_python(code)
    assert done.returncode == 0, done.stderr
