"""The simulator's libraries in a folder with the layout of CANN."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.child import run_child, run_python

from acl.sim import library_dir
from acl.sim.cann_layout import lay_out


def test_programs_find_all_libraries_in_the_cann_layout(tmp_path: Path) -> None:
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


def test_cann_layout_replaces_the_earlier_files_of_its_folder(tmp_path: Path) -> None:
    made = lay_out(tmp_path)
    (made / "old.so").write_text("")
    assert lay_out(tmp_path) == made and not (made / "old.so").exists()


def test_libraries_of_the_cann_layout_share_one_simulator(tmp_path: Path) -> None:
    """The folder has links, not copies, so a library loaded through both paths is loaded once."""
    made = lay_out(tmp_path)
    for name in ("libascendcl.so", "libacl_op_compiler.so"):
        assert os.path.samefile(made / name, Path(library_dir(), name))


def test_cann_layout_without_a_compiler_says_that_it_is_missing(tmp_path: Path) -> None:
    done = run_child("-m", "acl.tools.cli", "sim", "folder", str(tmp_path), CC="no-such-compiler")
    assert done.returncode == 1 and "no-such-compiler" in done.stderr and "Traceback" not in done.stderr


def test_cann_layout_without_mindspore_says_that_it_is_missing(tmp_path: Path) -> None:
    if find_spec("mindspore") is not None:
        pytest.skip("MindSpore is installed")
    done = run_child("-m", "acl.tools.cli", "sim", "folder", str(tmp_path), "--mindspore")
    assert done.returncode == 2 and "MindSpore is not installed" in done.stderr


def test_sim_folder_command_prints_the_path_of_the_layout(tmp_path: Path) -> None:
    done = run_child("-m", "acl.tools.cli", "sim", "folder", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"LD_LIBRARY_PATH={tmp_path.resolve() / 'latest' / 'lib64'}"
