"""`aclpool run`: the program's arguments, its exit code, its errors, and what the pools did."""

import subprocess
from pathlib import Path

import pytest
from support.child import run_child


def run(folder: Path, program: str, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`aclpool run BEFORE program.py ARGUMENTS`."""
    path = folder / "program.py"
    path.write_text(program)
    return run_child("-m", "aclpool", "run", "--backend", "sim", *before, str(path), *arguments, ACL_BACKEND="")


def test_the_program_is_main_and_gets_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("here = 1")
    done = run(tmp_path, "import sys, beside; print(__name__, sys.argv[1:], beside.here, __file__ == sys.argv[0])",
               "--size", "4", "x")
    assert done.stdout == "__main__ ['--size', '4', 'x'] 1 True\n", done.stderr


@pytest.mark.parametrize(("arguments", "left"), [
    (["a", "--pool"], ["a"]), (["--backend", "sim", "b"], ["b"]), (["--", "--pool", "c"], ["--pool", "c"]),
    (["--pools", "--po"], ["--pools", "--po"]),
])
def test_our_options_may_stand_among_the_programs(tmp_path: Path, arguments: list[str], left: list[str]) -> None:
    done = run(tmp_path, "import sys; print(sys.argv[1:])", *arguments)
    assert done.stdout.splitlines()[0] == str(left), done.stderr


@pytest.mark.parametrize(("code", "expected"), [
    ("import sys; sys.exit(3)", 3), ("pass", 0), ("raise SystemExit", 0), ("raise SystemExit('why')", 1), ("1/0", 1),
])
def test_the_exit_code_is_the_programs(tmp_path: Path, code: str, expected: int) -> None:
    assert run(tmp_path, code).returncode == expected


def test_an_error_shows_the_programs_own_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, "def f():\n    1 / 0\nf()\n")
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].endswith("program.py\", line 3, in <module>")
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "runpy" not in done.stderr


def test_a_missing_program_is_answered(tmp_path: Path) -> None:
    done = run_child("-m", "aclpool", "run", str(tmp_path / "none.py"))
    assert done.returncode == 2
    assert "there is no file" in done.stderr
    done = run_child("-m", "aclpool", "run")
    assert (done.returncode, "which program?" in done.stderr) == (2, True)


@pytest.mark.parametrize(("before", "complaint"), [
    (("--pool", "--pool-limit", "3Q"), "--pool-limit must look like '8GiB'"),
    (("--library", "/no/such/lib.so"), "--library: there is no file /no/such/lib.so"),
])
def test_a_wrong_option_is_told_before_the_program_runs(
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
def test_each_stream_is_registered_and_forgotten(tmp_path: Path, device: int) -> None:
    done = run(tmp_path, REGISTERED.format(device=device), before=("--pool",))
    lines = done.stdout.splitlines()
    assert lines[:3] == ["[0, 0]", "[0, 0]", "[True, True]"], done.stderr
    assert lines[3].startswith(f"pool of device {device}: 2 streams, 0 allocations")


def test_without_pool_nothing_is_registered(tmp_path: Path) -> None:
    done = run(tmp_path, REGISTERED.format(device=0))
    assert done.stdout.splitlines() == ["[100000, 100000]", "[0, 0]", "[True, True]"], done.stderr


def test_the_report_counts_what_the_pool_served(tmp_path: Path) -> None:
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


def test_the_pools_limit_is_kept(tmp_path: Path) -> None:
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


def test_the_vendors_module_ahead_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "acl.py").write_text("raise ImportError('not this one')")
    done = run(tmp_path, "import acl; print(acl.rt.get_device_count()[1])")
    assert done.stdout == "0\n", done.stderr


@pytest.mark.subprocess_heavy
def test_streams_of_later_threads_are_served(tmp_path: Path) -> None:
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


def test_a_limit_below_one_page_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").touch()
    done = run_child("-m", "aclpool", "run", "--pool-limit", "1KiB", str(tmp_path / "empty.py"))
    assert (done.returncode, "expected at least one granule (2 MiB), got '1KiB'" in done.stderr) == (2, True)
