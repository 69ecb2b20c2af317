"""The simulator's libraries in a folder with the layout of CANN."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.child import run_child, run_python

from acl.sim import library_dir
from acl.sim.cann_layout import lay_out


def test_programs_find_everything_there(tmp_path: Path) -> None:
    made = lay_out(tmp_path)
    assert made == tmp_path / "latest" / "lib64"
    done = run_python("""
        import ctypes, os, sys
        class Info(ctypes.Structure):
            _fields_ = [("path", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                        ("address", ctypes.c_void_p)]
        libraries = {name: ctypes.CDLL(name) for name in (
            "libascendcl.so", "libacl_op_compiler.so", "libmsprofiler.so", "libacl_tdt_channel.so", "libhccl.so",
            "libge_runner.so", "libgraph.so", "libruntime.so", "libascend_hal.so")}
        info = Info()
        ctypes.CDLL(None).dladdr(ctypes.cast(libraries["libascendcl.so"].aclrtMalloc, ctypes.c_void_p),
                                 ctypes.byref(info))
        assert info.path.endswith(b"latest/lib64/libascendcl.so"), info.path
        libraries["libmsprofiler.so"].aclprofInit, libraries["libacl_tdt_channel.so"].acltdtCreateChannel
        assert libraries["libhccl.so"].HcclSetConfig(0, None) == 0
        import acl
        assert acl.backend() == "sim" and acl.Device.count() == 2
    """, LD_LIBRARY_PATH=str(made), ACL_LIBRARY=str(made / "libascendcl.so"))
    assert done.returncode == 0, done.stderr


def test_it_replaces_what_was_there(tmp_path: Path) -> None:
    made = lay_out(tmp_path)
    (made / "old.so").write_text("")
    assert lay_out(tmp_path) == made and not (made / "old.so").exists()


def test_there_is_one_simulator(tmp_path: Path) -> None:
    """The folder has links, not copies, so a library loaded through both paths is loaded once."""
    made = lay_out(tmp_path)
    for name in ("libascendcl.so", "libacl_op_compiler.so"):
        assert os.path.samefile(made / name, Path(library_dir(), name))


def test_without_a_compiler_it_says_so(tmp_path: Path) -> None:
    done = run_child("-m", "acl.tools.cli", "sim", "folder", str(tmp_path), CC="no-such-compiler")
    assert done.returncode == 1 and "no-such-compiler" in done.stderr and "Traceback" not in done.stderr


def test_without_mindspore_it_says_so(tmp_path: Path) -> None:
    if find_spec("mindspore") is not None:
        pytest.skip("MindSpore is installed")
    done = run_child("-m", "acl.tools.cli", "sim", "folder", str(tmp_path), "--mindspore")
    assert done.returncode == 2 and "MindSpore is not installed" in done.stderr


def test_the_command_tells_the_path(tmp_path: Path) -> None:
    done = run_child("-m", "acl.tools.cli", "sim", "folder", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"LD_LIBRARY_PATH={tmp_path.resolve() / 'latest' / 'lib64'}"
