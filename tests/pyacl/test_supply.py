"""`acl.rt.allocator_*`: allocators written in Python supply memory; functions in C are passed on unchanged."""

import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import acl

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
ADVISE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
ADDRESS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Consumer:
    """Call the registered functions, as the runtime does."""

    def __init__(self, stream: int) -> None:
        found = acl.rt.allocator_get_by_stream(stream)
        assert found[-1] == 0
        self.object = found[1]
        self.alloc_function, self.free_function = ALLOC(found[2]), FREE(found[3])
        self.advise_function, self.address_function = ADVISE(found[4]), ADDRESS(found[5])

    def alloc(self, size: int) -> int:
        return self.alloc_function(self.object, size) or 0

    def advise(self, size: int, near: int) -> int:
        return self.advise_function(self.object, size, near) or 0

    def free(self, block: int) -> None:
        self.free_function(self.object, block)

    def address(self, block: int) -> int:
        return self.address_function(block) or 0


class Allocator:
    """An allocator in Python that records its calls."""

    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {}
        self.calls: list[Any] = []

    def alloc(self, given: int, size: int) -> int:
        self.calls.append(("alloc", given, size))
        self.blocks[len(self.calls)] = bytes(size)
        return len(self.calls)

    def advise(self, given: int, size: int, near: int) -> int:
        self.calls.append(("advise", given, size, near))
        self.blocks[len(self.calls)] = bytes(size)
        return len(self.calls)

    def free(self, given: int, block: int) -> None:
        self.calls.append(("free", given, block))
        del self.blocks[block]

    def address(self, block: int) -> int:
        return acl.util.bytes_to_ptr(self.blocks[block])


@pytest.fixture
def queue() -> Iterator[int]:
    acl.rt.set_device(0)
    stream, ret = acl.rt.create_stream()
    assert ret == 0
    yield stream
    acl.rt.allocator_unregister(stream)
    assert acl.rt.destroy_stream(stream) == 0


@pytest.fixture
def desc() -> Iterator[int]:
    made = acl.rt.allocator_create_desc()
    assert made != 0
    yield made
    acl.rt.allocator_destroy_desc(made)


def fill(desc: int, allocator: Any, given: int = 77, advise: bool = True) -> None:
    assert acl.rt.allocator_set_obj_to_desc(desc, given) == 0
    assert acl.rt.allocator_set_alloc_func_to_desc(desc, allocator.alloc) == 0
    assert acl.rt.allocator_set_free_func_to_desc(desc, allocator.free) == 0
    assert acl.rt.allocator_set_get_addr_from_block_func_to_desc(desc, allocator.address) == 0
    if advise:
        assert acl.rt.allocator_set_alloc_advise_func_to_desc(desc, allocator.advise) == 0


def test_a_python_allocator_supplies_memory(queue: int, desc: int) -> None:
    allocator = Allocator()
    fill(desc, allocator)
    assert acl.rt.allocator_register(queue, desc) == 0
    consumer = Consumer(queue)
    size = (1 << 32) + 5        # CANN's functions truncate it to 32 bits
    allocator.blocks[1] = b""
    block = consumer.alloc(64)
    assert consumer.address(block) == acl.util.bytes_to_ptr(allocator.blocks[1])
    near = consumer.advise(16, 4096)
    consumer.free(block)
    consumer.free(near)
    assert allocator.calls == [("alloc", 77, 64), ("advise", 77, 16, 4096), ("free", 77, 1), ("free", 77, 2)]
    allocator.alloc = lambda given, asked: allocator.calls.append(asked) or 0   # type: ignore[method-assign]
    acl.rt.allocator_set_alloc_func_to_desc(desc, allocator.alloc)
    assert acl.rt.allocator_register(queue, desc) == 0
    assert Consumer(queue).alloc(size) == 0
    assert allocator.calls[-1] == size


def test_without_an_advise_function_alloc_serves(queue: int, desc: int) -> None:
    allocator = Allocator()
    fill(desc, allocator, advise=False)
    assert acl.rt.allocator_register(queue, desc) == 0
    consumer = Consumer(queue)
    consumer.free(consumer.advise(8, 4096))
    assert allocator.calls[0] == ("alloc", 77, 8)


def test_allocator_descriptors_each_keep_their_own_callables(desc: int) -> None:
    acl.rt.set_device(0)
    streams = [acl.rt.create_stream()[0] for _ in range(2)]
    other = acl.rt.allocator_create_desc()
    allocators = [Allocator(), Allocator()]
    for stream, d, allocator, given in zip(streams, [desc, other], allocators, [1, 2], strict=True):
        fill(d, allocator, given)
        assert acl.rt.allocator_register(stream, d) == 0
    blocks = [Consumer(stream).alloc(10 + i) for i, stream in enumerate(streams)]
    assert allocators[0].calls == [("alloc", 1, 10)]
    assert allocators[1].calls == [("alloc", 2, 11)]
    for stream, block in zip(streams, blocks, strict=True):
        Consumer(stream).free(block)
        assert acl.rt.allocator_unregister(stream) == 0
        assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.allocator_destroy_desc(other) == 0


def test_allocator_callables_are_kept_while_registered_or_blocks_are_live(queue: int) -> None:
    desc = acl.rt.allocator_create_desc()
    allocator = Allocator()
    fill(desc, allocator)
    alive = weakref.ref(allocator)
    assert acl.rt.allocator_register(queue, desc) == 0
    assert acl.rt.allocator_destroy_desc(desc) == 0
    consumer = Consumer(queue)
    del allocator
    gc.collect()
    block = consumer.alloc(8)
    assert block != 0
    assert acl.rt.allocator_unregister(queue) == 0
    gc.collect()
    assert alive() is not None      # a block is still live and may be freed after unregistering
    consumer.free(block)
    gc.collect()
    assert alive() is None
    assert consumer.alloc(8) == 0   # without its allocator it returns NULL and does not crash


@pytest.mark.parametrize("missing", ["alloc", "free", "get_addr_from_block"])
def test_a_descriptor_without_a_function_is_refused(queue: int, missing: str) -> None:
    desc = acl.rt.allocator_create_desc()
    allocator = Allocator()
    functions = {"alloc": allocator.alloc, "free": allocator.free, "get_addr_from_block": allocator.address}
    assert acl.rt.allocator_set_obj_to_desc(desc, 1) == 0
    for name, function in functions.items():
        if name != missing:
            assert getattr(acl.rt, f"allocator_set_{name}_func_to_desc")(desc, function) == 0
    assert acl.rt.allocator_register(queue, desc) == 100000
    assert acl.rt.allocator_get_by_stream(queue)[-1] != 0
    assert acl.rt.allocator_destroy_desc(desc) == 0


def test_an_exception_in_alloc_means_no_memory(queue: int, desc: int, monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: caught.append(hook.exc_type))
    allocator = Allocator()
    allocator.alloc = lambda given, size: 1 // 0    # type: ignore[method-assign]
    fill(desc, allocator)
    assert acl.rt.allocator_register(queue, desc) == 0
    assert Consumer(queue).alloc(8) == 0
    assert caught == [ZeroDivisionError]


def test_none_from_alloc_means_no_memory(queue: int, desc: int) -> None:
    allocator = Allocator()
    allocator.alloc = lambda given, size: None      # type: ignore[method-assign,assignment,return-value]
    fill(desc, allocator)
    assert acl.rt.allocator_register(queue, desc) == 0
    assert Consumer(queue).alloc(8) == 0


def test_allocator_callbacks_work_on_threads_not_started_by_python(queue: int, desc: int) -> None:
    allocator = Allocator()
    fill(desc, allocator)
    assert acl.rt.allocator_register(queue, desc) == 0
    consumer = Consumer(queue)
    blocks: list[int] = []
    threads = [threading.Thread(target=lambda: blocks.append(consumer.alloc(8))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(blocks)) == 4 and 0 not in blocks
    for block in blocks:
        consumer.free(block)
    assert allocator.blocks == {}


def test_addresses_of_c_functions_go_to_c_as_they_are(queue: int, desc: int) -> None:
    calls: list[Any] = []
    functions = [ALLOC(lambda given, size: calls.append((given, size)) or 4096), FREE(lambda given, block: None),
                 ADVISE(lambda given, size, near: 4096), ADDRESS(lambda block: block)]
    addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in functions]
    assert acl.rt.allocator_set_obj_to_desc(desc, 55) == 0
    for name, address in zip(["alloc", "free", "alloc_advise", "get_addr_from_block"], addresses, strict=True):
        assert getattr(acl.rt, f"allocator_set_{name}_func_to_desc")(desc, address) == 0
    assert acl.rt.allocator_register(queue, desc) == 0
    assert acl.rt.allocator_get_by_stream(queue)[1:] == (55, *addresses, 0)
    assert Consumer(queue).alloc(3) == 4096
    assert calls == [(55, 3)]


def test_c_functions_beside_a_callable_get_pythons_object_and_blocks(queue: int, desc: int) -> None:
    freed: list[Any] = []
    native = FREE(lambda given, block: freed.append((given, block)))
    place = ADDRESS(lambda block: block + 8)
    assert acl.rt.allocator_set_obj_to_desc(desc, 9) == 0
    assert acl.rt.allocator_set_alloc_func_to_desc(desc, lambda given, size: 4096) == 0
    assert acl.rt.allocator_set_free_func_to_desc(desc, ctypes.cast(native, ctypes.c_void_p).value) == 0
    address = ctypes.cast(place, ctypes.c_void_p).value
    assert acl.rt.allocator_set_get_addr_from_block_func_to_desc(desc, address) == 0
    assert acl.rt.allocator_register(queue, desc) == 0
    consumer = Consumer(queue)
    block = consumer.alloc(1)
    assert consumer.address(block) == 4104
    consumer.free(block)
    assert freed == [(9, 4096)]


def test_registering_again_releases_the_old_callables(queue: int, desc: int) -> None:
    old = Allocator()
    fill(desc, old)
    assert acl.rt.allocator_register(queue, desc) == 0
    alive = weakref.ref(old)
    other = acl.rt.allocator_create_desc()
    fill(other, Allocator())
    assert acl.rt.allocator_register(queue, other) == 0
    del old
    assert acl.rt.allocator_destroy_desc(desc) == 0
    gc.collect()
    assert alive() is None
    assert acl.rt.allocator_destroy_desc(other) == 0


def test_wrong_allocator_functions_and_descriptors_are_refused(desc: int) -> None:
    with pytest.raises(TypeError, match="argument 2 is not callable"):
        acl.rt.allocator_set_alloc_func_to_desc(desc, "text")
    with pytest.raises(TypeError, match="args parse failed"):
        acl.rt.allocator_set_obj_to_desc(desc, "text")
    assert acl.rt.allocator_set_alloc_func_to_desc(desc, 0) == 100000
    assert acl.rt.allocator_set_alloc_func_to_desc(4711, print) == 100000
    assert acl.rt.allocator_set_obj_to_desc(desc, 0) == 100000
    assert acl.rt.allocator_destroy_desc(4711) == 100000
    assert acl.rt.allocator_register(0, desc) == 100000
    assert acl.rt.allocator_unregister(0) == 100000


@pytest.mark.parametrize("setter", ["allocator_set_obj_to_desc", "allocator_set_alloc_func_to_desc"])
def test_a_pool_registers_its_own_c_functions(queue: int, desc: int, setter: str) -> None:
    with acl.Pool(0) as pool:
        pool.register(queue)
        expected = acl.rt.allocator_get_by_stream(queue)
        pool.unregister(queue)
        assert getattr(acl.rt, setter)(desc, pool) == 0
        assert acl.rt.allocator_register(queue, desc) == 0
        assert acl.rt.allocator_get_by_stream(queue)[1:] == expected[1:]
        assert pool.streams == (queue,)
        consumer = Consumer(queue)
        block = consumer.alloc(1000)
        assert consumer.address(block) % 64 == 0
        assert pool.stats().requested >= 1000
        consumer.free(block)
        assert acl.rt.allocator_unregister(queue) == 0
        assert pool.streams == ()
        assert acl.rt.allocator_get_by_stream(queue)[-1] != 0


def test_registration_refused_by_a_pool_returns_an_error_code(desc: int) -> None:
    with acl.Pool(0) as pool:
        assert acl.rt.allocator_set_obj_to_desc(desc, pool) == 0
        assert acl.rt.allocator_register(0, desc) != 0
