"""Init, devices and contexts: sequences of calls, each in a new process, and their codes.

The codes are those that the real runtime returned (shared/probes) or that its sources state.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.child import run_python

PRELUDE = """
    import ctypes as C, json, sys, threading
    from acl import sim
    L = C.CDLL(f"{sim.library_dir()}/libascendcl.so")
    R, vp = C.byref, C.c_void_p
    def device():
        found = C.c_int32(-7)
        return [L.aclrtGetDevice(R(found)), found.value]
    def context(*which):
        made = vp()
        if which: assert L.aclrtCreateContext(R(made), *which) == 0
        else: assert L.aclrtGetCurrentContext(R(made)) == 0
        return made
    def stream():
        made = vp()
        assert L.aclrtCreateStream(R(made)) == 0
        return made
    def elsewhere(call):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(call()))
        thread.start(); thread.join()
        return answers[0]
    def count():
        left = C.c_uint64(99)
        return [L.aclFinalizeReference(R(left)), left.value]
"""

SEQUENCES: dict[str, tuple[str, object]] = {
    # The next rows test aclInit and aclFinalize.
    "init twice": ("[L.aclInit(None), L.aclInit(None), L.aclFinalize(), L.aclFinalize()]", [0, 100002, 0, 100037]),
    "init again after finalize": ("[L.aclInit(None), L.aclFinalize(), L.aclInit(None), L.aclFinalize()]", [0] * 4),
    "references count down": (
        "[L.aclInit(None), L.aclInit(None), count(), count(), count()]",
        [0, 100002, [0, 1], [0, 0], [100037, 0]],
    ),
    "finalize drops all references": (
        "[L.aclInit(None), L.aclInit(None), L.aclFinalize(), count()]", [0, 100002, 0, [100037, 0]],
    ),
    "the count may be NULL": ("[L.aclInit(None), L.aclFinalizeReference(None), L.aclInit(None)]", [0, 0, 0]),
    "no such configuration file": ("L.aclInit(b'/nonexistent/acl.json')", 100003),
    "an empty path is no file": ("L.aclInit(b'')", 0),
    "the device lives on after finalize": (
        "[L.aclInit(None), L.aclrtSetDevice(0), L.aclFinalize(), device(), L.aclrtResetDevice(0)]",
        [0, 0, 0, [0, 0], 0],
    ),
    # The next rows test callbacks of aclInit and aclFinalize.
    "init callbacks are one of a type": (
        "[L.aclInitCallbackRegister(0, f, None) for f in [C.CFUNCTYPE(C.c_int, C.c_char_p, C.c_size_t, vp)"
        "(lambda *a: 0)] for _ in (0, 1)]",
        [0, 500000],
    ),
    "a NULL init callback": ("[L.aclInitCallbackRegister(0, None, None), L.aclFinalizeCallbackRegister(0, None, None)]",
                             [100000, 100000]),
    # The next rows test devices.
    "no device is set": ("[device(), L.aclrtSynchronizeDevice(), L.aclrtCreateStream(R(vp()))]",
                         [[107002, -7], 107002, 107002]),
    "devices that are not there": ("[L.aclrtSetDevice(d) for d in (-1, 2, 1000)]", [107001] * 3),
    "NULL for a device's number": ("[L.aclrtGetDevice(None), L.aclrtGetDeviceCount(None), L.aclrtGetRunMode(None)]",
                                   [100000] * 3),
    "resetting what is not set": ("[L.aclrtResetDevice(d) for d in (0, -1, 1000)]", [507007, 107001, 107001]),
    "each set wants a reset": (
        "[L.aclrtSetDevice(0), L.aclrtSetDevice(0), L.aclrtResetDevice(0), device(), L.aclrtResetDevice(0), device(),"
        " L.aclrtResetDevice(0)]",
        [0, 0, 0, [0, 0], 0, [107002, -7], 507007],
    ),
    "a forced reset takes all": (
        "[L.aclrtSetDevice(0), L.aclrtSetDevice(0), L.aclrtResetDeviceForce(0), device(), L.aclrtResetDevice(0)]",
        [0, 0, 0, [107002, -7], 507007],
    ),
    "any thread may reset": (
        "[L.aclrtSetDevice(0), elsewhere(lambda: L.aclrtResetDevice(0)), device(), L.aclrtResetDevice(0)]",
        [0, 0, [107002, -7], 507007],
    ),
    "sets count over threads": (
        "[L.aclrtSetDevice(0), elsewhere(lambda: L.aclrtSetDevice(0)), L.aclrtResetDevice(0), device()]",
        [0, 0, 0, [0, 0]],
    ),
    "the last reset leaves no context": (
        "[L.aclrtSetDevice(0), L.aclrtSetDevice(1), device(), L.aclrtResetDevice(0), device(), L.aclrtResetDevice(1)]",
        [0, 0, [0, 1], 0, [107002, -7], 0],
    ),
    "a reset ends the streams": ("[L.aclrtSetDevice(0), [L.aclrtResetDevice(0), L.aclrtSynchronizeStream(s)] "
                                 "if (s := stream()) else 0]", [0, [0, 107017]]),
    "whether a device is active": (
        "[[L.aclrtGetPrimaryCtxState(0, None, R(a)), a.value, L.aclrtSetDevice(0), L.aclrtGetPrimaryCtxState(0, None, "
        "R(a)), a.value, L.aclrtGetPrimaryCtxState(9, None, R(a)), L.aclrtGetPrimaryCtxState(0, R(a), R(a)),"
        " L.aclrtGetPrimaryCtxState(0, None, None)] for a in [C.c_int32(-9)]][0]",
        [0, 0, 0, 0, 1, 107001, 100000, 100000],
    ),
    # The next rows test contexts.
    "a new context is current": (
        "[L.aclrtSetDevice(0), [a.value != b.value, context().value == b.value] if (a := context(), b := context(0)) "
        "else 0]", [0, [True, True]],
    ),
    "bad contexts": (
        "[L.aclrtCreateContext(None, 0), L.aclrtCreateContext(R(vp()), -1), L.aclrtCreateContext(R(vp()), 9),"
        " L.aclrtDestroyContext(None), L.aclrtSetCurrentContext(None), L.aclrtGetCurrentContext(None)]",
        [100000, 107001, 107001, 100000, 100000, 100000],
    ),
    "garbage is no context": ("[L.aclrtSetCurrentContext(C.create_string_buffer(4096)), "
                              "L.aclrtDestroyContext(C.create_string_buffer(4096))]", [107000, 107002]),
    "a default context is not destroyed": ("[L.aclrtSetDevice(0), L.aclrtDestroyContext(context())]", [0, 107002]),
    "destroyed once": ("[L.aclrtSetDevice(0), [L.aclrtDestroyContext(c), L.aclrtDestroyContext(c), device(),"
                       " L.aclrtSetCurrentContext(c)] if (c := context(0)) else 0]",
                       [0, [0, 107002, [107002, -7], 107000]]),
    "a context outlives its device's reset": (
        "[L.aclrtSetDevice(0), [L.aclrtResetDevice(0), L.aclrtSetCurrentContext(c), device(), L.aclrtDestroyContext(c)]"
        " if (c := context(0)) else 0]", [0, [0, 0, [0, 0], 0]],
    ),
    "a context needs no set device": ("[device() if context(1) else 0, L.aclrtResetDevice(1)]", [[0, 1], 507007]),
    "default contexts end with the reset": (
        "[L.aclrtSetDevice(0), [L.aclrtResetDevice(0), L.aclrtSetCurrentContext(c)] if (c := context()) else 0]",
        [0, [0, 107000]],
    ),
    "the default stream may be destroyed": (
        "[L.aclrtSetDevice(0), [L.aclrtCtxGetCurrentDefaultStream(R(s)), L.aclrtSynchronizeStream(s),"
        " L.aclrtDestroyStream(s), L.aclrtSynchronizeStream(s), L.aclrtCtxGetCurrentDefaultStream(None)]"
        " if (s := vp()) is not None else 0]", [0, [0, 0, 0, 107017, 100000]],
    ),
    # The next rows test the thread's last error.
    "the last error": (
        "[L.aclrtSetDevice(1000), L.aclrtPeekAtLastError(0), L.aclrtGetLastError(0), L.aclrtGetLastError(0),"
        " L.aclrtPeekAtLastError(1), L.aclrtGetLastError(-1)]",
        [107001, 107001, 107001, 0, 100000, 100000],
    ),
    "success does not clear it": ("[L.aclrtSetDevice(1000), L.aclrtSetDevice(0), L.aclrtGetLastError(0)]",
                                  [107001, 0, 107001]),
    "the ACL layer's errors are not kept": ("[L.aclrtSetDevice(1000), L.aclrtGetDevice(None), L.aclrtGetLastError(0)]",
                                            [107001, 100000, 107001]),
    "negative timeouts are not kept": (
        "[L.aclrtSetDevice(0), L.aclrtSynchronizeStreamWithTimeout(None, -2), L.aclrtGetLastError(0),"
        " L.aclrtSynchronizeStreamWithTimeout(None, 0), L.aclrtGetLastError(0)]", [0, 107000, 0, 107000, 107000],
    ),
    "each thread has its own": ("[L.aclrtSetDevice(1000), elsewhere(lambda: L.aclrtPeekAtLastError(0)),"
                                " L.aclrtPeekAtLastError(0)]", [107001, 0, 107001]),
}


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence_of_device_calls_returns_the_documented_codes(name: str) -> None:
    expression, expected = SEQUENCES[name]
    done = run_python(PRELUDE + f"    print(json.dumps({expression}))\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


CONFIGURATIONS: dict[str, tuple[str, object]] = {
    "an object": ("{}", [0, [107002, -7]]),
    "a default device": ('{"defaultDevice": {"default_device": "1"}}', [0, [0, 1]]),
    "as a number": (
        '{"dump": {"a": [1, 2.5e3, null]}, "defaultDevice": {"default_device": 1}}', [500001, [107002, -7]],
    ),
    "a long number": ('{"defaultDevice": {"default_device": "01"}}', [500001, [107002, -7]]),
    "other scalars": ('{"dump": {"a": [1, 2.5e3, null]}, "err_msg_mode": "0"}', [0, [107002, -7]]),
    "no mode of messages": ('{"err_msg_mode": 1}', [100000, [107002, -7]]),
    "too deep": ("[" * 11 + "]" * 11, [100006, [107002, -7]]),
    "not JSON": ("{'a': 1}", [100006, [107002, -7]]),
    "cut off": ('{"a": [1, 2', [100006, [107002, -7]]),
    "empty": ("", [0, [107002, -7]]),
    "a device that is not there": ('{"defaultDevice": {"default_device": "7"}}', [107001, [107002, -7]]),
    "no number": ('{"defaultDevice": {"default_device": "one"}}', [500001, [107002, -7]]),
}


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_aclinit_reads_its_configuration_file(name: str, tmp_path: Path) -> None:
    text, expected = CONFIGURATIONS[name]
    path = tmp_path / "acl.json"
    path.write_text(text)
    done = run_python(PRELUDE + f"    print(json.dumps([L.aclInit({str(path).encode()!r}), elsewhere(device)]))\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


@pytest.mark.subprocess_heavy
def test_impossible_setting_makes_aclinit_fail() -> None:
    done = run_python(
        PRELUDE + "    print(L.aclInit(None)); L.aclGetRecentErrMsg.restype = C.c_char_p\n"
        "    print(L.aclGetRecentErrMsg().decode())\n",
        ACL_SIM_DEVICES="many",
    )
    assert done.stdout.startswith("100000\n")
    assert "ACL_SIM_DEVICES is 'many', expected a number from 0 to 64" in done.stdout


@pytest.mark.subprocess_heavy
def test_a_forked_child_is_refused_with_a_message() -> None:
    done = run_python(PRELUDE + """
    import os
    L.aclInit(None); L.aclrtSetDevice(0)
    s = stream()
    L.aclGetRecentErrMsg.restype = C.c_char_p
    pid = os.fork()
    if pid == 0:
        codes = [L.aclrtSynchronizeStream(s), L.aclrtCreateStream(R(vp())), L.aclrtSetDevice(0)]
        text = L.aclGetRecentErrMsg() or b""
        os._exit(0 if codes == [507000] * 3 and b"forked" in text else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), L.aclrtSynchronizeStream(s))
    """)
    assert done.stdout.split() == ["0", "0"], done.stderr


@pytest.mark.subprocess_heavy
def test_a_process_that_used_no_device_may_fork() -> None:
    done = run_python(PRELUDE + """
    import os
    L.aclrtGetDeviceCount(R(C.c_uint32()))
    pid = os.fork()
    if pid == 0:
        os._exit(0 if L.aclInit(None) == 0 and L.aclrtSetDevice(0) == 0 and stream().value else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """)
    assert done.stdout.split() == ["0"], done.stderr


@pytest.mark.subprocess_heavy
def test_detached_callbacks_are_not_called_any_more() -> None:
    done = run_python(PRELUDE + """
    import threading, time
    L.aclInit(None); L.aclrtSetDevice(0)
    s, ran, gate = stream(), [], threading.Event()
    call = C.CFUNCTYPE(None, vp)(lambda argument: (ran.append("begin"), gate.wait(30), ran.append("end"))[0])
    assert L.aclrtLaunchHostFunc(s, call, None) == 0
    while not ran: time.sleep(0.01)
    early = L.acl_sim_callbacks_detach(10)
    gate.set()
    print(early, L.acl_sim_callbacks_detach(30000), ran)
    assert L.aclrtLaunchHostFunc(s, call, None) == 0
    print(L.aclrtSynchronizeStream(s), len(ran))
    """)
    assert done.stdout.splitlines() == ["507046 0 ['begin', 'end']", "0 2"], done.stderr


@pytest.mark.subprocess_heavy
def test_a_process_has_one_configuration(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text('{"a": 1}')
    second.write_text('{"a": 2}')
    done = run_python(
        PRELUDE + f"    paths = [{str(first)!r}.encode(), {str(second)!r}.encode(), None]\n"
        "    print([L.aclInit(paths[0]), L.aclFinalize(), L.aclInit(paths[1]), L.aclInit(None), L.aclInit(paths[0])])\n"
    )
    assert done.stdout == "[0, 0, 100000, 100000, 0]\n", done.stderr


@pytest.mark.subprocess_heavy
def test_callbacks_are_given_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    path.write_text('{"a": 1}')
    done = run_python(PRELUDE + f"""
    seen = []
    sort = C.CFUNCTYPE(C.c_int, C.c_char_p, C.c_size_t, C.c_void_p)
    functions = [sort(lambda text, size, kind: seen.append((kind, text, size)) or 0) for _ in range(3)]
    L.aclInitCallbackRegister.argtypes = [C.c_int, C.c_void_p, C.c_void_p]
    for kind in (6, 1):
        L.aclInitCallbackRegister(kind, C.cast(functions[kind == 1], C.c_void_p), kind)
    assert L.aclInit({str(path)!r}.encode()) == 0
    L.aclInitCallbackRegister(65535, C.cast(functions[2], C.c_void_p), 7)
    print(seen)
""")
    text = b'{"a": 1}'
    assert done.stdout == f"{[(kind, text, 8) for kind in (1, 6, 7)]}\n", done.stderr


@pytest.mark.subprocess_heavy
def test_a_finalize_that_fails_keeps_the_count() -> None:
    done = run_python(PRELUDE + """
    refuse = C.CFUNCTYPE(C.c_int, C.c_void_p)(lambda argument: 5)
    count = C.c_uint64(9)
    L.aclFinalizeCallbackRegister(0, refuse, None)
    print([L.aclInit(None), L.aclFinalizeReference(C.byref(count)), count.value, L.aclInit(None)])
""")
    assert done.stdout == "[0, 5, 1, 100002]\n", done.stderr
