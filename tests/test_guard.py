"""Guarded streams: errors of the pool's users are found, told with the block's history, and survived."""

import ctypes
from collections.abc import Iterator

import pytest
from support.core import MIB, Door, open_door

import acl
from acl._guard import reports

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture
def door() -> Iterator[Door]:
    with open_door(debug=True) as (pool, _, made):
        yield made
        assert pool.check() == 0


def found(before: dict[str, int]) -> dict[str, int]:
    return {kind: count - before[kind] for kind, count in reports().items() if count != before[kind]}


@pytest.mark.parametrize("size", [1, 100, 512, 4096, 3 * MIB + 5])
def test_an_overflow_is_found_at_the_free(door: Door, capfd: pytest.CaptureFixture[str], size: int) -> None:
    before = reports()
    block, address = door.take(size)
    acl.Device(0).synchronize()
    ctypes.memset(address + size, 0, 1)
    door.free(block)
    assert found(before) == {"overflow": 1}
    told = capfd.readouterr().err
    assert "past the end" in told
    assert f"allocated {size} bytes" in told


def test_a_write_to_a_freed_block_is_found(capfd: pytest.CaptureFixture[str]) -> None:
    before = reports()
    with open_door(debug=True) as (pool, stream, door):
        block, address = door.take(1000)
        door.free(block)
        stream.synchronize()
        ctypes.memset(address + 17, 1, 1)
        pool.unregister(stream)  # what is held back is looked at
    assert found(before) == {"use after free": 1}
    told = capfd.readouterr().err
    assert told.index("allocated 1000") < told.index("freed 1000")


def test_a_double_free_is_found_while_the_block_is_held_and_later(
    door: Door, capfd: pytest.CaptureFixture[str]
) -> None:
    before = reports()
    block = door.alloc(512)
    door.free(block)
    door.free(block)
    assert found(before) == {"double free": 1}
    for other in [door.alloc(5000) for _ in range(70)]:
        door.free(other)
    door.free(block)
    assert found(before) == {"double free": 2}
    assert "freed twice" in capfd.readouterr().err


def test_a_foreign_pointer_is_found(door: Door, capfd: pytest.CaptureFixture[str]) -> None:
    before = reports()
    block = door.alloc(512)
    door.free(block + 8)
    door.free(4096)
    door.free(block)
    assert found(before) == {"foreign pointer": 2}
    assert "no live block" in capfd.readouterr().err


def test_right_programs_are_told_nothing(door: Door, capfd: pytest.CaptureFixture[str]) -> None:
    before = reports()
    for size in (0, 1, 511, 512, 70000, MIB, 5 * MIB) * 12:
        block, address = door.take(size)
        acl.Device(0).synchronize()
        ctypes.memset(address, 5, size)
        advised = door.advise(size, address)
        door.free(block)
        door.free(advised)
    assert found(before) == {}
    assert capfd.readouterr().err == ""


def test_what_is_held_back_serves_before_an_allocation_fails() -> None:
    with open_door(debug=True, limit="16MiB") as (_, _, door):
        for _ in range(4):
            block = door.alloc(9 * MIB)
            assert block
            door.free(block)


def test_the_environment_switches_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_door() as (pool, _, plain):
        assert not pool.guarded
    monkeypatch.setenv("ACL_POOL_DEBUG", "1")
    with open_door() as (pool, _, guarded):
        assert pool.guarded
        assert guarded.values[1:4] != plain.values[1:4]
        assert acl.allocator_of(pool.streams[0]).pool is pool  # type: ignore[union-attr]
