"""C programs in the style of CANN's examples: compiled with our headers, run on the simulator."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest
from support.programs import compile_program, run_program

from acl import sim

SOURCES = Path(__file__).parents[1] / "c/examples"
PLAIN = ["memory", "streams", "callbacks", "devices", "virtual_memory", "allocator", "errors", "queues",
         "profiling"]

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the examples; return their folder."""
    folder = tmp_path_factory.mktemp("examples")
    for source in sorted(SOURCES.glob("*.c")):
        compile_program(source, folder)
    return folder


@pytest.mark.parametrize("devices", ["1", "2", "4"])
@pytest.mark.parametrize("name", PLAIN)
def test_c_example_runs_with_several_numbers_of_devices(programs: Path, name: str, devices: str) -> None:
    done = run_program(programs / name, ACL_SIM_DEVICES=devices)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("name", PLAIN)
def test_c_example_runs_in_strict_mode(programs: Path, name: str) -> None:
    done = run_program(programs / name, ACL_SIM_STRICT="1", ACL_SIM_STRICT_ALLOCATORS="1")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("soc", ["Ascend910_9391", "Ascend310P3", "Ascend950PR_9599"])
def test_c_examples_run_on_other_chips(programs: Path, soc: str) -> None:
    for name in PLAIN:
        done = run_program(programs / name, ACL_SIM_SOC=soc)
        assert (done.returncode, done.stdout) == (0, "ok\n"), f"{name}: {done.stderr}"


@pytest.mark.parametrize(("devices", "arguments"), [("1", ()), ("2", ("0", "1")), ("4", ("3", "2"))])
def test_c_example_with_two_processes_runs(programs: Path, devices: str, arguments: tuple[str, ...]) -> None:
    done = run_program(programs / "two_processes", *arguments, ACL_SIM_DEVICES=devices)
    assert (done.returncode, done.stdout) == (0, "ok\nok\n"), done.stderr


def test_runtime_has_the_same_functions_under_its_second_library_name(tmp_path: Path) -> None:
    program = compile_program(SOURCES / "memory.c", tmp_path, "acl_rt")
    assert run_program(program).stdout == "ok\n"
    first, second = (ctypes.CDLL(f"{sim.library_dir()}/{name}") for name in ("libascendcl.so", "libacl_rt.so"))
    addresses = {ctypes.cast(library.aclrtMalloc, ctypes.c_void_p).value for library in (first, second)}
    assert len(addresses) == 1


def test_c_example_fails_on_a_chip_without_its_feature(programs: Path) -> None:
    assert "207000" in run_program(programs / "allocator", ACL_SIM_SOC="Ascend310B1").stderr
    assert "207000" in run_program(programs / "virtual_memory", ACL_SIM_SOC="Ascend910A").stderr
