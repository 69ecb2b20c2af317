"""The messages that the library logs; it logs nothing else."""

import logging
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.child import run_python
from support.core import Door

import acl
from acl.pyacl import _vendor

pytestmark = pytest.mark.usefixtures("no_leaks")


def lines(caplog: pytest.LogCaptureFixture, name: str) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == name]


def test_log_tells_when_a_pool_is_made_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "acl")
    with acl.Pool(0, name="service") as pool:
        buffer = pool.alloc(1000)
    buffer.close()
    (made, closed) = lines(caplog, "acl.pool")
    assert made == ("DEBUG", "service made on device 0")
    assert closed == ("WARNING", "service is closed while 1536 bytes are live: their memory stays until the last of "
                                 "these blocks is freed")


def test_lack_of_virtual_memory_is_logged_once(
    caplog: pytest.LogCaptureFixture, sim: ModuleType
) -> None:
    with sim.fault("aclrtReserveMemAddress", every=1, code=207000), acl.Pool(0, name="old") as pool:
        for _ in range(3):
            pool.alloc(30 << 20).close()
            pool.trim()
    told = lines(caplog, "acl.pool")
    assert [line for line in told if line[0] == "WARNING"] == [
        ("WARNING", "old works in segments, which wastes more: device 0 has no virtual memory")]


def test_segments_that_were_requested_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with acl.Pool(0, segments=True) as pool:
        pool.alloc(3 << 20).close()
    assert [line for line in lines(caplog, "acl.pool") if line[0] != "DEBUG"] == []


def test_use_of_the_vendor_module_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "acl")
    monkeypatch.setattr(_vendor, "_vendor", None)
    module = ModuleType("acl")
    module.__file__ = "/opt/acl.so"
    _vendor.adopt(module)
    ((level, text),) = lines(caplog, "acl.vendor")
    assert level == "INFO" and "/opt/acl.so" in text


def test_refused_growth_is_logged_once_for_each_reason(
    caplog: pytest.LogCaptureFixture, sim: ModuleType
) -> None:
    """A callback that cannot grow the pool may not log: the refusal is logged later, once for each reason."""
    caplog.set_level(logging.INFO, "acl")
    with acl.Pool(0, "32MiB", name="bounded") as pool, acl.Stream(0) as stream:
        pool.register(stream)
        door = Door(stream)
        held = pool.alloc(20 << 20, stream)
        for _ in range(5):
            assert door.alloc(14 << 20) == 0
        held.close()
        told = [line for line in lines(caplog, "acl.pool") if "could not grow" in line[1]]
        assert told == [("INFO", "bounded could not grow by 2.00 MiB, as its limit is 32.00 MiB: it goes on with "
                                 "memory of its own, moved, if that is enough")]
        pool.limit = None
        with sim.fault("aclrtMallocPhysical", every=1, code=507899):
            assert door.alloc(100 << 20) == 0
        told = [line for line in lines(caplog, "acl.pool") if "could not grow" in line[1]]
        assert len(told) == 2 and told[1][0] == "WARNING" and "as the driver answers 507899" in told[1][1]
        pool.unregister(stream)


def test_package_is_silent_by_default_and_imports_no_logging(tmp_path: Path) -> None:
    done = run_python("""
        import sys
        before = "logging" in sys.modules
        import acl
        pool = acl.Pool(0, "4MiB", debug=True)
        try:
            pool.alloc("5MiB")
        except acl.OutOfMemoryError:
            pass
        pool.close()
        print(before or "logging" not in sys.modules)
    """)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_refused_folder_of_top_is_reported_in_the_log_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    done = run_python("import acl; acl.Pool(0).alloc(100).close()", ACL_POOL_TOP="1", ACL_POOL_TOP_DIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_loggers_are_children_of_one_with_a_null_handler() -> None:
    from acl.bind import _log

    found = _log.logger("pool")
    assert found is not None and found.name == "acl.pool" and found.parent is logging.getLogger("acl")
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("acl").handlers)
    assert "logging" in sys.modules


@pytest.mark.subprocess_heavy
def test_refused_growth_during_an_import_is_logged() -> None:
    done = run_python(
        """
    import ctypes, logging, sys
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s")
    import acl
    pool = acl.Pool(0, limit="4MiB")
    stream = acl.Stream()
    pool.register(stream)
    door = acl.allocator_of(stream)
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(door.alloc)

    class Finder:           # the allocator meets its limit while `dataclasses` is half imported
        def find_spec(self, name, path=None, target=None):
            if name == "keyword":
                sys.meta_path.remove(self)
                alloc(door.object, 3 << 20)
                alloc(door.object, 3 << 20)
                for _ in range(10000):
                    pass
            return None

    for name in ("keyword", "dataclasses", "acl.inside._books"):
        loaded = sys.modules.pop(name, None)
    sys.meta_path.insert(0, Finder())
    import dataclasses
    """
    )
    assert (done.stdout, done.returncode) == ("acl.pool\n", 0), done.stderr
    assert "ignored" not in done.stderr
