"""Projects built like CANN's own examples, in a tree that `aclpool sim folder` made."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.child import child_environment

from acl.sim.cann_layout import lay_out
from acl.tools.onnx_writer import Builder

HERE = Path(__file__).parent
PROJECTS = HERE / "cann"
EXAMPLES = HERE.parent / "c/examples"

pytestmark = pytest.mark.subprocess_heavy
wants_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="wants cmake")
wants_pkg_config = pytest.mark.skipif(shutil.which("pkg-config") is None, reason="wants pkg-config")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return `latest` of a tree, in a folder with a space in its name."""
    return lay_out(tmp_path_factory.mktemp("cann tree"), version="8.5.0").parent


def shell(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run lines of bash, which stop at the first failure."""
    environment = {name: value for name, value in child_environment(**variables).items()
                   if not name.startswith(("ACL_", "ASCEND", "LD_LIBRARY_PATH"))} | variables
    return subprocess.run(["bash", "-euc", text], cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=300)


def test_sources_compiled_after_set_env_run_without_further_settings(tree: Path, tmp_path: Path) -> None:
    done = shell("""
        . "$TREE/set_env.sh"
        gcc "$EXAMPLES/memory.c" -o memory -pthread -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_HOME_PATH/lib64" -lascendcl
        ./memory
    """, tmp_path, TREE=str(tree), EXAMPLES=str(EXAMPLES))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("libraries", ["acl_tdt_queue acl_tdt_channel acl_rt", "acl_rt c_sec"])
def test_program_linked_by_other_names_of_the_runtime_runs(tree: Path, tmp_path: Path, libraries: str) -> None:
    """The program is linked against CANN's other libraries that export the functions, never against libascendcl."""
    done = shell("""
        . "$TREE/bin/setenv.bash"
        gcc "$EXAMPLES/queues.c" -o queues -pthread -I"$ASCEND_HOME_PATH/runtime/include" \
            -L"$ASCEND_HOME_PATH/runtime/lib64/stub" $LIBRARIES
        readelf -d queues | grep NEEDED | tr '\\n' ' '
        ./queues
    """, tmp_path, TREE=str(tree), EXAMPLES=str(EXAMPLES), LIBRARIES=f"-l{libraries.replace(' ', ' -l')}")
    assert done.returncode == 0 and done.stdout.endswith("ok\n"), done.stdout + done.stderr
    assert f"[lib{libraries.split()[0]}.so]" in done.stdout and "[libascendcl.so]" not in done.stdout


def test_program_built_in_the_tree_runs_under_sim_run(tree: Path, tmp_path: Path) -> None:
    done = shell("""
        gcc "$EXAMPLES/queues.c" -o queues -pthread -I"$TREE/include" -L"$TREE/lib64" -lacl_tdt_queue -lascendcl
        python -m acl.tools.sim --devices 1 -- ./queues
    """, tmp_path, TREE=str(tree), EXAMPLES=str(EXAMPLES))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@wants_pkg_config
def test_pkg_config_gives_flags_and_version(tree: Path, tmp_path: Path) -> None:
    done = shell("""
        . "$TREE/set_env.sh"
        pkg-config --modversion ascendcl
        pkg-config --exists "ascendcl >= 8.0"
        eval "flags=($(pkg-config --cflags --libs ascendcl))"
        gcc "$EXAMPLES/streams.c" -o streams -pthread "${flags[@]}"
        ./streams
    """, tmp_path, TREE=str(tree), EXAMPLES=str(EXAMPLES))
    assert (done.returncode, done.stdout) == (0, "8.5.0\nok\n"), done.stderr


@wants_cmake
def test_cmake_finds_the_package_and_ctest_runs_without_set_env(tree: Path, tmp_path: Path) -> None:
    done = shell("""
        cmake -S "$PROJECT" -B build -DCMAKE_PREFIX_PATH="$TREE" -DEXAMPLES="$EXAMPLES" >configured
        cmake --build build >built
        ctest --test-dir build --output-on-failure
    """, tmp_path, TREE=str(tree), PROJECT=str(PROJECTS / "find_package"), EXAMPLES=str(EXAMPLES))
    assert done.returncode == 0, done.stdout + done.stderr


@wants_cmake
def test_cmake_refuses_a_version_above_the_trees(tmp_path: Path) -> None:
    old = lay_out(tmp_path / "old", version="7.9.0").parent
    done = shell('cmake -S "$PROJECT" -B build -DCMAKE_PREFIX_PATH="$TREE"', tmp_path, TREE=str(old),
                 PROJECT=str(PROJECTS / "find_package"))
    assert done.returncode != 0 and "7.9.0" in done.stderr


@wants_cmake
def test_project_with_its_own_run_sh_builds_and_runs(tree: Path, tmp_path: Path) -> None:
    done = shell("bash run.sh", PROJECTS / "run_sh", ASCEND_INSTALL_PATH=str(tree), BUILD=str(tmp_path / "build"))
    assert done.returncode == 0 and done.stdout.endswith("equal\n"), done.stdout + done.stderr


@wants_cmake
def test_project_with_device_code_is_told_what_is_missing(tree: Path, tmp_path: Path) -> None:
    done = shell("""
        . "$TREE/set_env.sh"
        cmake -S "$PROJECT" -B build -DWITH_KERNEL=1 -DASCEND_CANN_PACKAGE_PATH="$TREE"
    """, tmp_path, TREE=str(tree), PROJECT=str(PROJECTS / "run_sh"))
    assert done.returncode != 0 and "the simulator has no compiler for device code" in done.stderr


@wants_cmake
def test_classic_sample_classifies_with_an_onnx_file_in_place_of_its_om(tree: Path, tmp_path: Path) -> None:
    graph = Builder(name="classifier")
    x = graph.input("x", "float32", [1, 4])
    weights = graph.constant(np.array([[1, 0, 0], [0, 2, 0], [0, 0, 1], [0, 0, 1]], dtype=np.float32))
    graph.output(graph.add("MatMul", x, weights), dims=[1, 3])
    (tmp_path / "resnet50.om").write_bytes(graph.to_bytes())
    done = shell("""
        export DDK_PATH="$TREE" NPU_HOST_LIB="$TREE/runtime/lib64/stub"
        cmake -S "$PROJECT" -B build >configured
        cmake --build build >built
        LD_LIBRARY_PATH="$TREE/lib64" ./build/main resnet50.om 7 3
    """, tmp_path, TREE=str(tree), PROJECT=str(PROJECTS / "classic"))
    assert (done.returncode, done.stdout) == (0, "top 1: index 2 value 7\n" * 6 + "6 results\n"), done.stderr


def test_folder_that_the_command_did_not_make_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "latest/lib64").mkdir(parents=True)
    (tmp_path / "latest/lib64/libascendcl.so").write_text("a real one")
    with pytest.raises(FileExistsError, match="was not made by aclpool sim folder"):
        lay_out(tmp_path)
    assert (tmp_path / "latest/lib64/libascendcl.so").read_text() == "a real one"
    other = tmp_path / "other"
    other.mkdir()
    os.symlink(tmp_path / "latest", other / "latest")
    with pytest.raises(FileExistsError):
        lay_out(other)
