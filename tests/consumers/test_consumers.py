"""Code outside the tree: a Cython module that cimports this package, and C programs with its headers."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

import acl
import acl.sim

HERE = Path(__file__).parents[1]


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(name: str, folder: Path, compiler: list[str], sources: list[str]) -> ModuleType:
    """Build and import an extension module, which links against nothing of this package."""
    target = folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    include = ["-I", acl.include_dir(), "-I", sysconfig.get_paths()["include"]]
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wno-unused-function"]
    subprocess.run([*compiler, *flags, *include, *sources, "-o", target], cwd=folder, check=True)
    return load(name, target)


def cython_module(name: str, folder: Path) -> ModuleType:
    """Build and import a module of tests/consumers/cython in `folder`, against the installed package."""
    return cython_code(name, (HERE / f"consumers/cython/{name}.pyx").read_text(), folder)


def cython_code(name: str, code: str, folder: Path) -> ModuleType:
    """Build and import a module from Cython code in `folder`, against the installed package."""
    (folder / f"{name}.pyx").write_text(code)
    package = str(Path(acl.__file__).parent.parent)
    command = [sys.executable, "-m", "cython", "-3", "-Werror", "-I", package, f"{name}.pyx"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=dict(os.environ))
    # The allocator's declarations include its C headers, which are in the package.
    return compiled(name, folder, ["gcc", "-I", str(Path(acl.__file__).parent)], [f"{name}.c"])


@pytest.fixture(scope="session")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return cython_module("consumer", tmp_path_factory.mktemp("consumer"))


def test_buffer_can_wrap_memory_of_a_consumer(consumer: ModuleType, no_leaks: None) -> None:
    content = bytes(range(64))
    with acl.Stream(0) as stream:
        before = consumer.facts(stream)[0]
        buffer = consumer.allocate(64, content, stream)
        assert consumer.address_of(buffer) == buffer.address
        assert (buffer.size, buffer.stream, buffer.device) == (64, stream, 0)
        assert acl.to_bytes(buffer) == content
        buffer.close()
        buffer.close()
        del buffer
        consumer.allocate(64, content)
        assert consumer.facts(stream)[0] == before + 2


def test_consumer_in_c_gets_the_stream_handle_and_the_device_number(consumer: ModuleType) -> None:
    with acl.Stream(0) as stream:
        _, raw, has, has_not, ordinal = consumer.facts(stream)
        assert (raw, has, has_not, ordinal) == (stream.handle, True, False, 3)


def test_error_raised_by_a_c_consumer_has_its_code_and_function(consumer: ModuleType) -> None:
    with pytest.raises(acl.InvalidArgumentError) as raised:
        consumer.fail()
    assert (raised.value.code, raised.value.function) == (107017, "aclrtSomething")


def test_consumer_call_with_a_wrong_type_is_refused(consumer: ModuleType) -> None:
    with pytest.raises(TypeError):
        consumer.address_of(None)


@pytest.mark.parametrize(
    "compiler", [["gcc", "-std=c11"], ["gcc", "-std=c99"], ["g++", "-std=c++14"]]
)
def test_c_program_of_a_consumer_runs_on_the_simulator(compiler: list[str], tmp_path: Path) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    folder = acl.sim.library_dir()
    source = tmp_path / ("program.cpp" if compiler[0] == "g++" else "program.c")
    shutil.copy(HERE / "consumers/c/program.c", source)
    warnings = ["-Wall", "-Wextra", "-Werror"]
    link = ["-L", folder, "-lascendcl", f"-Wl,-rpath,{folder}"]
    program = tmp_path / "program"
    subprocess.run(
        [*compiler, *warnings, "-I", acl.include_dir(), source, "-o", program, *link], check=True
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("bytes that travel, 1 call\n", 0), done.stderr
