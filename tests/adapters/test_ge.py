"""GE's Python allocator over a pool.

CANN's package `ge` is not on PyPI (the package of that name there is another one), so these tests use a stand-in
with exactly the published Python signatures: `ge.allocator.MemBlock(addr, size)`, `Allocator.malloc(size)`,
`free(block)`, `Session.register_external_allocator(stream, allocator)`.
"""

from __future__ import annotations

import importlib
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.core import MIB, physical, physical_base  # noqa: F401

import acl
import acl.ge


class MemBlock:
    def __init__(self, addr: int, size: int) -> None:
        self._addr, self._size = addr, size

    @property
    def addr(self) -> int:
        return self._addr

    @property
    def size(self) -> int:
        return self._size


class GeAllocator(ABC):
    @abstractmethod
    def malloc(self, size: int) -> MemBlock: ...

    @abstractmethod
    def free(self, block: MemBlock) -> None: ...


class Session:
    """A session that checks its arguments as GE's documentation says."""

    def __init__(self) -> None:
        self.allocators: dict[int, GeAllocator] = {}

    def load_graph(self, graph: int, options: dict[str, str], stream: int) -> None:
        """Allocate the graph's memory at once, as GE does."""
        made = self.allocators[stream]
        made.free(made.malloc(3 * MIB))

    def register_external_allocator(self, stream: int, allocator: GeAllocator) -> None:
        if not isinstance(stream, int):
            raise TypeError("stream must be int")
        if not isinstance(allocator, GeAllocator):
            raise TypeError("allocator must be Allocator")
        self.allocators[stream] = allocator


@pytest.fixture
def ge(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    package, module = ModuleType("ge"), ModuleType("ge.allocator")
    package.__path__ = []
    module.Allocator, module.MemBlock = GeAllocator, MemBlock  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ge", package)
    monkeypatch.setitem(sys.modules, "ge.allocator", module)
    acl.ge.__dict__.pop("Allocator", None)
    yield module
    acl.ge.__dict__.pop("Allocator", None)


def test_ge_allocator_is_a_subclass_of_the_allocator_of_ge(ge: ModuleType, stream: acl.Stream) -> None:
    with acl.Pool(0) as pool:
        made = acl.ge.Allocator(pool, stream)
        assert isinstance(made, GeAllocator)
        assert made.pool is pool
        assert acl.ge.Allocator is acl.ge.Allocator
        block = made.malloc(1000)
        assert isinstance(block, MemBlock)
        assert (block.size, block.addr % 512) == (1000, 0)
        made.free(block)


def test_ge_blocks_come_from_the_arena_of_the_stream_without_padding(ge: ModuleType, stream: acl.Stream) -> None:
    with acl.Pool(0) as pool:
        made = acl.ge.Allocator(pool, stream)
        block = made.malloc(512)
        (part,) = pool.stats().streams
        assert (part.stream, part.allocated, part.requested) == (stream.handle, 512, 512)
        made.free(block)
        again = made.malloc(512)
        assert again.addr == block.addr
        made.free(again)


def test_ge_free_finds_the_block_by_its_address(ge: ModuleType, stream: acl.Stream) -> None:
    with acl.Pool(0) as pool:
        made = acl.ge.Allocator(pool, stream)
        block = made.malloc(4096)
        made.free(MemBlock(block.addr, block.size))
        with pytest.raises(ValueError, match="no address of this allocator"):
            made.free(block)
        assert pool.stats().allocated == 0


def test_ge_allocation_without_memory_raises_a_memory_error(ge: ModuleType, stream: acl.Stream) -> None:
    with acl.Pool(0, limit=4 * MIB) as pool:
        made = acl.ge.Allocator(pool, stream)
        with pytest.raises(MemoryError) as caught:
            made.malloc(8 * MIB)
        assert isinstance(caught.value, acl.OutOfMemoryError)
        made.free(made.malloc(MIB))


@pytest.mark.parametrize(
    ("size", "error"), [(-1, ValueError), (1 << 46, ValueError), ("5", TypeError), (True, TypeError)]
)
def test_ge_allocation_of_a_wrong_size_is_refused(
    ge: ModuleType, stream: acl.Stream, size: Any, error: type[Exception]
) -> None:
    with acl.Pool(0) as pool, pytest.raises(error, match="size must be"):
        acl.ge.Allocator(pool, stream).malloc(size)


def test_ge_register_passes_the_allocator_to_the_session(ge: ModuleType, stream: acl.Stream) -> None:
    session = Session()
    with acl.Pool(0) as pool:
        made = acl.ge.register(session, pool, stream)
        assert session.allocators == {stream.handle: made}
        assert acl.ge.register(session, pool, stream.handle) is not made


def test_example_of_the_ge_document_runs(ge: ModuleType) -> None:
    text = (Path(__file__).parents[2] / "docs/ge.md").read_text()
    (code,) = re.findall(r"```text\n(.*?)```", text, re.S)
    names: dict[str, Any] = {"acl": acl, "session": Session(), "graph_id": 1, "options": {}}
    exec(code, names)
    assert names["pool"].stats().limit == 24 << 30
    assert names["pool"].stats().requested_peak == 3 * MIB
    names["pool"].close()
    names["stream"].close()


@pytest.mark.parametrize(("pool", "stream", "text"), [
    (3, None, r"'pool' has incorrect type \(expected acl.pool._pool.Pool, got int\)"),
    (None, None, r"'pool' has incorrect type .*got NoneType"),
    ("", "first", "stream must be a Stream or the handle of one, not str"),
])
def test_ge_allocator_names_an_argument_that_is_not_a_pool_or_stream(
    ge: ModuleType, pool: Any, stream: Any, text: str
) -> None:
    with acl.Pool(0) as real, pytest.raises(TypeError, match=text):
        acl.ge.Allocator(real if pool == "" else pool, stream)


def test_ge_allocator_returns_the_memory_of_many_blocks(ge: ModuleType, stream: acl.Stream) -> None:
    with acl.Pool(0) as pool:
        made = acl.ge.Allocator(pool, stream)
        blocks = [made.malloc(32 + 512 * number) for number in range(300)]
        assert len({block.addr for block in blocks}) == 300 == made.blocks.count
        for block in blocks[::2] + blocks[1::2]:
            made.free(block)
        pool.trim()
        assert (pool.check(), pool.stats().reserved, physical()) == (0, 0, 0)


def test_ge_allocator_without_cann_raises_an_error_that_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    acl.ge.__dict__.pop("Allocator", None)
    monkeypatch.setitem(sys.modules, "ge", None)
    with pytest.raises(ImportError, match="PyPI is another one"):
        acl.ge.Allocator  # noqa: B018


def test_foreign_package_named_ge_is_not_mistaken_for_that_of_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    acl.ge.__dict__.pop("Allocator", None)
    other = ModuleType("ge")
    other.__path__ = []
    monkeypatch.setitem(sys.modules, "ge", other)
    monkeypatch.delitem(sys.modules, "ge.allocator", raising=False)
    with pytest.raises(ImportError, match="CANN's package ge"):
        acl.ge.Allocator  # noqa: B018


def test_unknown_name_in_the_ge_module_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        importlib.import_module("acl.ge").nonsense  # noqa: B018
