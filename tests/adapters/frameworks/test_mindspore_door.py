"""The pool as MindSpore's allocator: `acl.mindspore`, with the real wheel, on the simulator.

An optional lane: the tests are skipped if MindSpore is not installed.  They test tensors to and from the device,
memory, and the order of streams.  They test no operators, because these need CANN's `libopapi.so`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.subprocess_heavy,
    pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="MindSpore is not installed"),
]

START = """
import aclpool as acl
import acl.mindspore, acl.sim as sim
import numpy as np
import mindspore as ms
MIB = 1 << 20
ms.set_device("Ascend", 0)
pool = acl.Pool(0, limit="256MiB")
memory = acl.mindspore.mem_pool(pool)
"""


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the tree with CANN's layout is kept."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(cache: Path):
    """Return a function that runs code in a new process, checks that it exits cleanly, and returns its output."""
    def program(code: str, start: str = START, **variables: str) -> str:
        environment = {**os.environ, "ACL_BACKEND": "sim", "XDG_CACHE_HOME": str(cache), "GLOG_v": "3", **variables}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", start + textwrap.dedent(code)],
            env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        return done.stdout

    return program


def test_mindspore_tensors_are_copied_to_the_device_and_back(run) -> None:
    run("""
    kept = []
    with ms.runtime.use_mem_pool(memory):
        for step in range(60):
            kind = (np.float32, np.int32, np.float16, np.uint8)[step % 4]
            host = np.arange(1 + 997 * step).astype(kind)
            kept.append((host, ms.Tensor(host).to("Ascend")))
            if len(kept) > 10:
                host, device = kept.pop(step % 10)
                assert np.array_equal(device.asnumpy(), host)
        for host, device in kept:
            assert np.array_equal(device.asnumpy(), host)
    kinds = {part.kind for part in pool.stats().streams}
    assert kinds == {"framework"}
    assert pool.stats().requested > 0 and pool.check() == 0
    """)


def test_memory_is_kept_until_mindspores_cache_is_emptied(run) -> None:
    run("""
    def one():
        with ms.runtime.use_mem_pool(memory):
            tensor = ms.Tensor(np.ones(3 * MIB, np.float32)).to("Ascend")
            assert float(tensor.asnumpy().sum()) == 3 * MIB
    def asked():
        return sum(part.hits + part.fits + part.slow for part in pool.stats().streams)
    one()
    first, times = pool.stats(), asked()
    assert first.requested >= 12 * MIB              # MindSpore keeps what its tensor gave back ...
    for _ in range(5):
        one()
    assert (asked(), pool.stats().requested) == (times, first.requested)    # ... and asks no more
    ms.runtime.synchronize()
    ms.runtime.empty_cache()
    assert pool.stats().requested == 0
    assert pool.trim() == 0                         # MindSpore's queue may still want it
    calls = sim.counters()["aclrtMallocPhysical"]
    one()                                           # the pool's own reuse: asked again, no driver call
    assert asked() > times and pool.stats().requested == first.requested
    assert sim.counters()["aclrtMallocPhysical"] == calls
    assert acl.mindspore.empty_cache() == first.reserved and pool.stats().reserved == 0
    """)


def test_mindspore_on_another_device_uses_the_pool_of_that_device(run) -> None:
    """MindSpore passes device 0 to its allocator, even if it uses another device."""
    run("""
    import aclpool as acl
    import acl.mindspore
    import numpy as np
    import mindspore as ms
    ms.set_device("Ascend", 1)
    mine, wrong = acl.Pool(1), acl.Pool(0)
    own = acl.mindspore.mem_pool()
    host = np.arange(1000, dtype=np.float32)
    kept = []
    for memory in (own, acl.mindspore.mem_pool(mine)):
        with ms.runtime.use_mem_pool(memory):
            kept.append(ms.Tensor(host).to("Ascend"))
            assert np.array_equal(kept[-1].asnumpy(), host)
    made, = (pool for pool in acl.mindspore.pools() if pool is not mine)
    assert (made.device, made.stats().requested) == (1, mine.stats().requested) and mine.stats().requested > 0
    raised = False
    try:
        # The error of the allocation or of its copy, at the copy or at the end of the block.
        with ms.runtime.use_mem_pool(acl.mindspore.mem_pool(wrong)):
            ms.Tensor(host).to("Ascend").asnumpy()
    except RuntimeError:
        raised = True
    assert raised, "memory of another device was accepted"
    assert wrong.stats().requested == 0
    """, start="")


def test_out_of_memory_raises_the_error_of_mindspore_and_later_allocations_work(run) -> None:
    run("""
    raised = 0
    with ms.runtime.use_mem_pool(memory):
        # The copy or the next wait has the error; what is queued until then is dropped with it.
        for step in (lambda: ms.Tensor(np.ones(80 * MIB, np.float32)).to("Ascend").asnumpy(), ms.runtime.synchronize):
            try:
                step()
            except RuntimeError:
                raised += 1
        host = np.arange(1000, dtype=np.int32)
        assert np.array_equal(ms.Tensor(host).to("Ascend").asnumpy(), host)
    assert raised and pool.last_oom().limit == 256 * MIB
    """)


def test_mindspore_allocates_its_own_memory_outside_the_with_block(run) -> None:
    run("""
    outside = ms.Tensor(np.ones(MIB, np.float32)).to("Ascend")
    assert float(outside.asnumpy().sum()) == MIB and pool.stats().requested == 0
    assert ms.runtime.memory_allocated() >= 4 * MIB
    """)


def test_process_exit_with_live_mindspore_tensors_is_silent(run) -> None:
    """MindSpore frees its memory at exit, after it destroyed its streams."""
    run("""
    with ms.runtime.use_mem_pool(memory):
        keep = [ms.Tensor(np.ones(MIB, np.float32)).to("Ascend") for _ in range(3)]
        print(keep[0].asnumpy()[0])
    """)


def test_mindspore_operators_need_the_library_of_cann(run) -> None:
    """On the simulator operators fail, because CANN's library is missing."""
    out = run("""
    tensor = ms.Tensor(np.ones(10, np.float32)).to("Ascend")
    try:
        (tensor + 1).asnumpy()
    except RuntimeError as error:
        print("libopapi.so" in str(error))
    """)
    assert out.strip() == "True"


def test_simulator_folder_serves_mindspore_without_this_package(run, tmp_path: Path) -> None:
    """The tree of `aclpool sim folder` serves a program that does not use this package."""
    made = subprocess.run(
        [sys.executable, "-m", "acl.tools.cli", "sim", "folder", str(tmp_path), "--mindspore"],
        capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    name, _, value = made.stdout.strip().partition("=")
    out = run("""
import mindspore as ms, numpy as np
ms.set_device("Ascend", 0)
print(ms.Tensor(np.arange(4)).to("Ascend").asnumpy())
""", start="", **{name: value})
    assert out.strip() == "[0 1 2 3]"
