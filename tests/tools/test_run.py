"""`aclpool run`: the program's arguments, its exit code, its errors, and the report about the pools."""

import subprocess
from pathlib import Path

import pytest
from support.child import run_child

from acl.tools.run_limit import limit_checked


def run(folder: Path, program: str, *arguments: str, before: tuple[str, ...] = (),
        **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `aclpool run BEFORE program.py ARGUMENTS`, with these changes to the environment."""
    path = folder / "program.py"
    path.write_text(program)
    return run_child("-m", "aclpool", "run", "--backend", "sim", *before, str(path), *arguments,
                     **{"ACL_BACKEND": "", **environment})


def test_program_under_aclpool_run_is_main_and_gets_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("here = 1")
    done = run(tmp_path, "import sys, beside; print(__name__, sys.argv[1:], beside.here, __file__ == sys.argv[0])",
               "--size", "4", "x")
    assert done.stdout == "__main__ ['--size', '4', 'x'] 1 True\n", done.stderr


@pytest.mark.parametrize(("arguments", "left"), [
    (["a", "--pool"], ["a"]), (["--backend", "sim", "b"], ["b"]), (["--", "--pool", "c"], ["--pool", "c"]),
    (["--pools", "--po"], ["--pools", "--po"]),
])
def test_options_of_aclpool_run_may_stand_among_those_of_the_program(
    tmp_path: Path, arguments: list[str], left: list[str]
) -> None:
    done = run(tmp_path, "import sys; print(sys.argv[1:])", *arguments)
    assert done.stdout.splitlines()[0] == str(left), done.stderr


@pytest.mark.parametrize(("code", "expected"), [
    ("import sys; sys.exit(3)", 3), ("pass", 0), ("raise SystemExit", 0), ("raise SystemExit('why')", 1), ("1/0", 1),
])
def test_exit_code_of_aclpool_run_is_that_of_the_program(tmp_path: Path, code: str, expected: int) -> None:
    assert run(tmp_path, code).returncode == expected


def test_error_in_the_program_shows_its_own_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, "def f():\n    1 / 0\nf()\n")
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith("program.py\", line 3, in <module>")
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "runpy" not in done.stderr


def test_missing_program_is_reported(tmp_path: Path) -> None:
    done = run_child("-m", "aclpool", "run", str(tmp_path / "none.py"))
    assert done.returncode == 2
    assert "there is no file" in done.stderr
    done = run_child("-m", "aclpool", "run")
    assert (done.returncode, "which program?" in done.stderr) == (2, True)


@pytest.mark.parametrize(("before", "complaint"), [
    (("--pool", "--pool-limit", "3Q"), "--pool-limit must look like '8GiB'"),
    (("--library", "/no/such/lib.so"), "--library: there is no file /no/such/lib.so"),
])
def test_wrong_option_is_reported_before_the_program_runs(
        tmp_path: Path, before: tuple[str, ...], complaint: str) -> None:
    done = run(tmp_path, "print('ran')", before=before)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


REGISTERED = """
import acl
acl.init(); acl.rt.set_device({device})
streams = [acl.rt.create_stream()[0], acl.rt.create_stream_with_config(0, 3)[0]]
print([acl.rt.allocator_get_by_stream(s)[-1] for s in streams])
print([acl.rt.destroy_stream(s) for s in streams])
print([acl.rt.allocator_get_by_stream(s)[-1] != 0 for s in streams])
"""


@pytest.mark.parametrize("device", [0, 1])
def test_each_stream_of_the_program_is_registered_and_unregistered(tmp_path: Path, device: int) -> None:
    done = run(tmp_path, REGISTERED.format(device=device), before=("--pool",))
    lines = done.stdout.splitlines()
    assert lines[:3] == ["[0, 0]", "[0, 0]", "[True, True]"], done.stderr
    assert lines[3].startswith(f"pool of device {device}: 2 streams, 0 allocations")


def test_streams_are_not_registered_without_a_pool(tmp_path: Path) -> None:
    done = run(tmp_path, REGISTERED.format(device=0))
    assert done.stdout.splitlines() == ["[100000, 100000]", "[0, 0]", "[True, True]"], done.stderr


def test_run_report_counts_the_allocations_of_the_pool(tmp_path: Path) -> None:
    done = run(tmp_path, """
import ctypes, acl
acl.init(); acl.rt.set_device(0)
stream, _ = acl.rt.create_stream()
_, obj, alloc, free, _, _, _ = acl.rt.allocator_get_by_stream(stream)
alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(alloc)
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(free)
for _ in range(10):
    free(obj, alloc(obj, 1 << 20))
""", "--pool")
    assert "pool of device 0: 1 streams, 10 allocations, 10 frees" in done.stdout, done.stderr
    assert "requested at most 1.0 MiB" in done.stdout


def test_a_program_without_streams_is_reported(tmp_path: Path) -> None:
    assert run(tmp_path, "import acl", "--pool").stdout == "no stream was made\n"


def test_limit_given_to_aclpool_run_is_kept(tmp_path: Path) -> None:
    done = run(tmp_path, """
import ctypes, acl
acl.init(); acl.rt.set_device(0)
stream, _ = acl.rt.create_stream()
_, obj, alloc, *_ = acl.rt.allocator_get_by_stream(stream)
alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(alloc)
print(bool(alloc(obj, 4 << 20)), bool(alloc(obj, 64 << 20)))
""", "--pool-limit", "8MiB")
    assert done.stdout.splitlines()[0] == "True False", done.stderr
    assert "1 failed" in done.stdout


def test_program_runs_although_the_vendor_module_is_found_first(tmp_path: Path) -> None:
    (tmp_path / "acl.py").write_text("raise ImportError('not this one')")
    done = run(tmp_path, "import acl; print(acl.rt.get_device_count()[1])")
    assert done.stdout == "0\n", done.stderr


@pytest.mark.subprocess_heavy
def test_streams_of_threads_started_later_are_served(tmp_path: Path) -> None:
    program = tmp_path / "threads.py"
    program.write_text("""
import threading, time
import acl
acl.init()
acl.rt.set_device(0)

def work():
    time.sleep(0.2)
    acl.rt.set_device(0)
    acl.rt.create_stream()

threading.Thread(target=work).start()
""")
    done = run_child("-m", "aclpool", "run", "--pool", str(program))
    assert done.returncode == 0, done.stderr
    assert "pool of device 0: 1 streams" in done.stdout


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize(("limit", "complaint"), [
    ("1KiB", "must be at least one granule (2 MiB), not '1KiB'"),
    ("1%", "must be at least one granule (2 MiB), not '1%' of 64.00 MiB"),
    ("65MiB", "must be at most the 64.00 MiB of the largest device, not '65MiB'"),
])
def test_limit_that_no_device_can_serve_is_refused_before_the_program_runs(
        tmp_path: Path, limit: str, complaint: str) -> None:
    done = run(tmp_path, "print('ran')", before=("--pool-limit", limit), ACL_SIM_MEMORY="64MiB")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"aclpool run: --pool-limit {complaint}\n")


@pytest.mark.subprocess_heavy
def test_limit_as_large_as_the_device_is_taken(tmp_path: Path) -> None:
    # Another process asks the devices; it has no faults, and the program's acl.init is the first call in its process.
    done = run(tmp_path, "import acl; print(acl.init())", before=("--pool-limit", "64MiB"), ACL_SIM_MEMORY="64MiB",
               ACL_SIM_FAULTS="aclrtGetMemInfo:every=1")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "0"), done.stderr


def test_limit_is_taken_if_no_device_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def unanswered(*of: object, **named: object) -> None:
        raise subprocess.TimeoutExpired("child", 60)

    monkeypatch.setattr(subprocess, "run", unanswered)
    limit_checked("1TiB")
    limit_checked("1%")
    with pytest.raises(ValueError, match="at least one granule"):
        limit_checked("1KiB")
