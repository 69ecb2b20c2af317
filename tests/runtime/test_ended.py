"""Streams that C code makes and destroys: what Python has of them ends with them."""

import ctypes
import gc
import sys
import threading
import time
import weakref

import pytest
from support.calls import api
from support.child import run_python
from support.streams import destroy, made

import acl
from acl.pool._registry import registered

pytestmark = pytest.mark.usefixtures("no_leaks")


class Fault(Exception):
    """An exception to which a weak reference can be made."""


def fail() -> None:
    raise Fault


def test_registration_of_a_stream_that_c_destroyed_ends_with_the_next_call() -> None:
    acl.Device(0).use()
    with acl.Pool(0) as pool:
        for _ in range(100):
            handle = made()
            pool.register(handle)
            assert handle in registered
            destroy(handle)
            assert len([one for one in registered.values() if one is pool]) <= 1
        acl.Event().close()
        assert handle not in registered


def test_pool_whose_streams_c_destroyed_is_freed_with_the_next_call() -> None:
    acl.Device(0).use()
    pool = acl.Pool(0)
    alive = weakref.ref(pool)
    handle = made()
    pool.register(handle)
    del pool
    assert alive() is not None
    destroy(handle)
    acl.Event().close()
    assert alive() is None


def test_registration_of_a_stream_that_lives_is_kept() -> None:
    acl.Device(0).use()
    with acl.Pool(0) as pool:
        ended, living = made(), made()
        pool.register(ended)
        pool.register(living)
        destroy(ended)
        acl.Event().close()
        assert ended not in registered
        assert registered[living] is pool
        pool.unregister(living)
        destroy(living)


def test_exception_of_a_callback_on_a_stream_that_c_destroyed_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: kept.append(weakref.ref(args.exc_value)))
    acl.Device(0).use()
    handle = made()
    acl.Stream.from_handle(handle).launch(fail)
    assert api.aclrtSynchronizeStream(ctypes.c_void_p(handle)) == 0
    gc.collect()
    assert kept[0]() is not None
    destroy(handle)
    acl.Event().close()
    gc.collect()
    assert kept[0]() is None


def test_exception_of_a_callback_that_runs_while_c_destroys_its_stream_is_not_kept(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: kept.append(weakref.ref(args.exc_value)))
    acl.Device(0).use()
    handle, go = made(), threading.Event()
    with acl.Pool(0) as pool:
        pool.register(handle)
        stream = acl.Stream.from_handle(handle)
        stream.launch(go.wait)
        stream.launch(fail)
        del stream
        ending = threading.Thread(target=destroy, args=(handle,))
        ending.start()                          # waits for the callbacks, after the end was noted
        deadline = time.monotonic() + 60
        while handle in registered and time.monotonic() < deadline:
            acl.Event().close()
        noted = handle not in registered
        go.set()
        ending.join()
        assert noted
    acl.Event().close()
    gc.collect()
    assert kept[0]() is None


REUSED = """
import ctypes, gc, sys
from support.calls import api, out
import acl

def made():
    stream = out()
    assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
    return stream.value

def destroy(handle):
    assert api.aclrtDestroyStream(ctypes.c_void_p(handle)) == 0

acl.Device(0).use()
sys.unraisablehook = lambda args: None
"""


def test_stream_with_a_reused_handle_does_not_raise_the_exception_of_the_earlier_one() -> None:
    child = run_python(REUSED + """
first = made()
kept = acl.Stream.from_handle(first)
kept.launch(lambda: 1 / 0)
assert api.aclrtSynchronizeStream(ctypes.c_void_p(first)) == 0
destroy(first)
second = made()
assert first == second
stream = acl.Stream.from_handle(second)
print(stream == kept, stream == acl.Stream.from_handle(second))
stream.synchronize()
stream.launch(lambda: [][0])
try:
    stream.synchronize()
except IndexError as error:
    print("raised", error)
""", ACL_SIM_REUSE_HANDLES="1")
    assert (child.stdout.splitlines(), child.stderr) == (["False True", "raised list index out of range"], "")


def test_registration_of_a_reused_handle_is_that_of_the_new_stream() -> None:
    child = run_python(REUSED + """
from acl.pool._registry import registered
pools = acl.Pool(0), acl.Pool(0)
for pool in pools:
    handle = made()
    pool.register(handle)
    print(len(registered), registered[handle] is pool, acl.allocator_of(handle).pool is pool)
    destroy(handle)
acl.Event().close()
print(len(registered))
""", ACL_SIM_REUSE_HANDLES="1")
    assert (child.stdout.split(), child.stderr) == ("1 True True 1 True True 0".split(), "")


def test_python_allocator_of_a_stream_that_c_destroyed_is_dropped_and_serves_no_later_stream() -> None:
    child = run_python(REUSED + """
import weakref
class Allocator:
    def alloc(self, given, size): return 1
    def free(self, given, block): pass
    def address(self, block): return 4096
desc = acl.rt.allocator_create_desc()
allocator = Allocator()
alive = weakref.ref(allocator)
acl.rt.allocator_set_obj_to_desc(desc, 7)
acl.rt.allocator_set_alloc_func_to_desc(desc, allocator.alloc)
acl.rt.allocator_set_free_func_to_desc(desc, allocator.free)
acl.rt.allocator_set_get_addr_from_block_func_to_desc(desc, allocator.address)
handle = made()
print(acl.rt.allocator_register(handle, desc), acl.rt.allocator_destroy_desc(desc))
del allocator
gc.collect()
print(alive() is not None)
destroy(handle)
again = made()
print(again == handle, acl.rt.allocator_get_by_stream(again)[-1] != 0)
acl.Event().close()
gc.collect()
print(alive() is None)
""", ACL_SIM_REUSE_HANDLES="1")
    assert (child.stdout.split(), child.stderr) == ("0 0 True True True True".split(), "")


COUNTS = """
pool = acl.Pool(0)

def use(count):
    for _ in range(count):
        handle = made()
        pool.register(handle)
        stream = acl.Stream.from_handle(handle)
        pool.alloc(4096, stream).close()
        stream.launch(lambda: 1 / 0)
        assert api.aclrtSynchronizeStream(ctypes.c_void_p(handle)) == 0
        del stream
        destroy(handle)
    gc.collect()
    return sys.getallocatedblocks()

use(50)
gc.disable()
few = use(50)
print(use(200) - few)
"""


def test_objects_of_python_do_not_grow_with_the_streams_that_c_destroyed() -> None:
    child = run_python(REUSED + COUNTS)
    assert child.stderr == ""
    assert int(child.stdout) < 50


def test_stream_of_a_library_that_tells_no_ends_stays_registered_until_it_is_unregistered() -> None:
    child = run_python(REUSED + """
from acl.pool._registry import registered
pool = acl.Pool(0)
handle = made()
pool.register(handle)
stream = acl.Stream.from_handle(handle)
print(stream == acl.Stream.from_handle(handle), handle in registered)
pool.unregister(handle)
destroy(handle)
print(handle in registered)
""", ACL_WITHOUT="aclrtRegStreamStateCallback")
    assert (child.stdout.split(), child.stderr) == ("True True False".split(), "")


def test_stream_that_acl_refuses_to_unregister_still_ends_in_the_pool() -> None:
    """The next stream has the same handle, and must not use the memory of the destroyed one."""
    child = run_python("""
import acl, acl.sim
pool = acl.Pool(0)
gone = acl.Stream()
pool.register(gone)
handle, buffer = gone.handle, pool.alloc(1000, gone)
with acl.sim.fault("aclrtAllocatorUnregister", nth=1, code=507000):
    try:
        gone.close()
    except acl.AclError as error:
        print(error.code)
stream = acl.Stream()
other = pool.alloc(1000, stream)
print(stream.handle == handle, len(pool.stats().streams))
""", ACL_WITHOUT="aclrtRegStreamStateCallback", ACL_SIM_REUSE_HANDLES="1")
    assert (child.stdout.split(), child.stderr) == ("507000 True 2".split(), "")
