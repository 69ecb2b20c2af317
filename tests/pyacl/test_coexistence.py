"""This package beside CANN's own `acl.so`, which `set_env.sh` puts first on PYTHONPATH."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.child import child_environment, run_child, run_python

import acl

SITE = str(Path(acl.__file__).resolve().parents[1])


@pytest.fixture(scope="session")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a stand-in for CANN's module."""
    folder = tmp_path_factory.mktemp("vendor")
    source = Path(__file__).parents[1] / "support/standin.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", f"-I{sysconfig.get_path('include')}", str(source),
                    "-o", str(folder / "acl.so")], check=True)
    return str(folder)


def ahead(vendor: str) -> str:
    """Return PYTHONPATH as set_env.sh sets it, with the folder of our package behind the vendor's."""
    return os.pathsep.join([vendor, SITE])


def behind(vendor: str) -> str:
    return os.pathsep.join([SITE, vendor])


def check(code: str, path: str, expected: str = "ok\n", **environment: str) -> None:
    done = run_python(code + "\nprint('ok')", PYTHONPATH=path, **environment)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_import_acl_finds_the_module_of_the_vendor(vendor: str) -> None:
    check("import acl; assert acl.rt.malloc() == 'vendor'", ahead(vendor))


def test_import_aclpool_always_finds_this_package(vendor: str) -> None:
    check("""
import aclpool, sys
assert aclpool.rt.malloc.__doc__ and sys.modules['acl'].__path__
assert aclpool.Buffer and aclpool.rt.get_device_count()[1] == 0
import acl
assert acl is sys.modules['acl'] and acl.rt is aclpool.rt
""", ahead(vendor))


def test_aclpool_imported_after_the_vendor_module_replaces_it_and_keeps_it_intact(vendor: str) -> None:
    check("""
import acl as first
assert first.init() == 'vendor'
import aclpool, sys, acl
assert acl is not first and acl.__path__
assert first.rt.malloc() == first.init() == 'vendor'
assert acl.rt.get_device_count()[1] == 0 and acl.rt is not first.rt
from acl.rt import malloc
assert malloc is aclpool.rt.malloc
assert sys.modules['acl.rt'] is acl.rt
""", ahead(vendor))


@pytest.mark.parametrize("order", [ahead, behind])
def test_names_that_only_the_vendor_module_has_are_delegated_to_it(vendor: str, order: object) -> None:
    check("""
import aclpool, sys
before = {n: m for n, m in sys.modules.items() if n.startswith('acl')}
functions = dict(vars(aclpool.rt))
for name in ('media', 'himpi', 'blas', 'fv'):
    assert getattr(aclpool, name).vpc_resize_async() == 'vendor', name
import acl
assert acl.media is aclpool.media
assert dict(vars(aclpool.rt)) == functions
assert all(sys.modules[n] is m for n, m in before.items())
""", order(vendor))


def test_the_vendors_submodules_can_be_imported(vendor: str) -> None:
    check("""
import aclpool as acl
import acl.media
from acl.himpi import vpc_resize_async
assert acl.media.vpc_resize_async() == vpc_resize_async() == 'vendor'
assert acl.rt.get_device_count()[1] == 0
""", ahead(vendor))


def test_delegation_uses_the_vendor_module_that_was_imported_first(vendor: str) -> None:
    check("import acl as first, aclpool; assert aclpool.media is first.media", ahead(vendor))


def test_vendor_module_is_reached_although_aclpool_is_found_first(vendor: str) -> None:
    check("""
import acl
assert acl.__path__ and acl.media.vpc_resize_async() == 'vendor'
assert acl.rt.get_device_count()[1] == 0
import aclpool
assert aclpool.rt is acl.rt
""", behind(vendor))


def test_missing_vendor_module_is_named_in_the_error() -> None:
    check("""
import aclpool
try:
    aclpool.himpi
except AttributeError as error:
    assert "it needs CANN's own acl module" in str(error)
try:
    import acl.himpi
except ModuleNotFoundError as error:
    assert "acl.himpi" in str(error) and "it needs CANN's own acl module" in str(error)
    assert error.name == "acl.himpi"
assert not hasattr(aclpool, 'nonsense')
""", SITE)


def test_device_memory_of_media_is_there_on_the_simulator() -> None:
    check("""
import acl
acl.rt.set_device(0)
pointer, ret = acl.media.dvpp_malloc(4096)
assert ret == 0 and acl.rt.memset(pointer, 4096, 1, 4096) == 0
assert acl.media.dvpp_free(pointer) == 0 and acl.media.dvpp_free(0) == 100000
import acl.media
from acl.media import dvpp_malloc
assert dvpp_malloc(0)[1] != 0 and not hasattr(acl.media, 'vpc_resize_async')
try:
    acl.media.vpc_resize_async
except AttributeError as error:
    assert "module 'acl.media' has no attribute 'vpc_resize_async': it needs CANN's own acl module" in str(error)
for wrong in (None, '1', 1.0):
    for function in (acl.media.dvpp_malloc, acl.media.dvpp_free):
        try:
            function(wrong)
        except TypeError as error:
            assert 'args parse failed' in str(error)
        else:
            raise AssertionError(wrong)
""", SITE)


def test_vendor_module_that_cannot_be_loaded_counts_as_missing(vendor: str) -> None:
    check("""
import aclpool
functions = dict(vars(aclpool.rt))
assert not hasattr(aclpool, 'himpi')
assert dict(vars(aclpool.rt)) == functions and aclpool.rt.get_device_count()[1] == 0
""", ahead(vendor), STANDIN_BROKEN="1")


def test_threads_still_find_aclpool_after_a_delegation(vendor: str) -> None:
    check("""
import aclpool, threading
aclpool.media
def use():
    import acl
    assert acl.rt.get_device_count()[1] == 0
threads = [threading.Thread(target=use) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
""", ahead(vendor))


def doctor(path: str, **environment: str) -> dict[str, dict[str, str]]:
    """Run the doctor; return its findings by the thing that it examined."""
    done = run_child("-m", "aclpool", "doctor", "--json", PYTHONPATH=path, **environment)
    assert done.stdout, done.stderr
    return {finding["what"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_doctor_explains_that_the_vendor_module_is_found_first(vendor: str) -> None:
    found = doctor(ahead(vendor))
    assert found["import acl"]["verdict"] == "note"
    assert found["import acl"]["value"] == f"{Path(vendor).resolve() / 'acl.so'}, not this package"
    assert "import aclpool as acl" in found["import acl"]["advice"]
    assert found["CANN's acl"]["value"].endswith("acl.so, serves what only it has")


def test_aclpool_command_starts_although_the_vendor_module_is_found_first(vendor: str) -> None:
    command = [Path(sys.executable).with_name("aclpool"), "doctor"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=300,
                          env=child_environment(PYTHONPATH=ahead(vendor)))
    assert done.returncode == 0, done.stderr
    assert "not this package" in done.stdout and done.stdout.endswith("healthy\n")


def test_doctor_explains_that_aclpool_is_found_first(vendor: str) -> None:
    found = doctor(behind(vendor))
    assert found["import acl"]["value"] == "this package"
    assert found["CANN's acl"]["value"].endswith("acl.so, serves what only it has")


def test_doctor_explains_that_there_is_no_vendor_module(vendor: str) -> None:
    found = doctor(SITE)
    assert found["import acl"]["value"] == "this package"
    assert found["CANN's acl"]["value"] == "not installed"


def test_doctor_explains_a_vendors_module_that_does_not_load(vendor: str) -> None:
    found = doctor(ahead(vendor), STANDIN_BROKEN="1")
    assert found["CANN's acl"]["verdict"] == "note"
    assert "it does not load" in found["CANN's acl"]["advice"]


@pytest.mark.subprocess_heavy
def test_modules_imported_as_acl_and_as_aclpool_are_one_object() -> None:
    done = run_python("""
        import importlib, importlib.util
        import aclpool
        for name in ("inside._top", "pyacl._hooks", "core._arena", "tools.cli", "inside._books", "tools.view.sources"):
            assert importlib.import_module("aclpool." + name) is importlib.import_module("acl." + name), name
        assert importlib.util.find_spec("aclpool.nothing_here") is None
        try:
            import aclpool.nothing_here
        except ModuleNotFoundError as error:
            assert error.name == "aclpool.nothing_here", error
        else:
            raise SystemExit("it was imported")
    """)
    assert done.returncode == 0, done.stderr
