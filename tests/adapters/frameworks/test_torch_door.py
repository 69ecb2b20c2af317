"""The pool as torch_npu's allocator: `acl.torch`, with the real wheels, on the simulator.

An optional lane, like test_torch_npu.py.  Each test runs its own process, because a process has only one
allocator.  The C++ part is compiled once and kept in a folder of this test run.
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
    pytest.mark.torch_npu,
    pytest.mark.subprocess_heavy,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed"),
]

START = """
import aclpool as acl
import acl.sim as sim
import gc, warnings
warnings.simplefilter("ignore")
MIB = 1 << 20
"""

INSTALLED = START + """
installed = acl.torch.install(shim={shim})
import torch
import torch.nn as nn
import torch.nn.functional as F
assert installed.shim is {shim}
torch.npu.set_device(0)
torch.manual_seed(0)
torch.set_grad_enabled(False)
"""

NETS = """
class Attention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.norm, self.heads = nn.LayerNorm(width), heads

    def forward(self, x):
        batch, tokens, width = x.shape
        split = lambda t: t.view(batch, tokens, self.heads, -1).transpose(1, 2)
        scores = split(self.q(x)) @ split(self.k(x)).transpose(-1, -2) / (width // self.heads) ** 0.5
        mixed = torch.softmax(scores, -1) @ split(self.v(x))
        return self.norm(x + self.o(mixed.transpose(1, 2).reshape(batch, tokens, width)))

import copy
mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32))
net = nn.Sequential(Attention(), mlp, Attention())
npu = copy.deepcopy(net).npu()

def forward(tokens, batch=2):
    x = torch.randn(batch, tokens, 32)
    return net(x), npu(x.npu())
"""


@pytest.fixture(scope="session")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the compiled C++ part is kept."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture
def run(extensions: Path):
    """Return a function that runs code in a new process, checks that it exits cleanly, and returns its output."""
    def program(code: str, start: str = INSTALLED, shim: bool = True, status: int = 0, **variables: str) -> str:
        environment = {
            **os.environ, "TORCH_EXTENSIONS_DIR": str(extensions), "ACL_BACKEND": "sim", **variables,
        }
        text = start.replace("{shim}", str(shim)) + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-c", text], env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == status, done.stdout + done.stderr
        if status == 0:
            assert "Traceback" not in done.stderr, done.stderr
            assert "[ERROR]" not in done.stderr, done.stderr
        return "\n".join(line for line in done.stdout.splitlines() if not line.startswith("Warning: "))

    return program


BOTH = pytest.mark.parametrize("shim", [True, False], ids=["with C++", "without"])


# ---- results


@BOTH
@pytest.mark.parametrize("queue", ["0", "1", "2"])
def test_forward_passes_equal_the_cpus(run, shim: bool, queue: str) -> None:
    run(NETS + """
for tokens in [1, 5, 17, 3, 40, 17, 1]:
    cpu, found = forward(tokens)
    assert torch.allclose(cpu, found.cpu(), atol=5e-3), (cpu - found.cpu()).abs().max()
""", shim=shim, TASK_QUEUE_ENABLE=queue)


HUNDREDS = NETS + """
import hashlib, random
random.seed(3)
kept, digest = [], hashlib.sha256()
def settle(cpu, found):
    found = found.cpu()
    assert torch.allclose(cpu, found, atol=5e-3)
    digest.update(found.numpy().tobytes())
for step in range(300):
    kept.append(forward(random.randrange(1, 48), random.randrange(1, 4)))
    if len(kept) > 40:
        settle(*kept.pop(random.randrange(40)))
for pair in kept:
    settle(*pair)
print(digest.hexdigest())
"""


def test_hundreds_of_passes_with_changing_shapes(run) -> None:
    """The results equal those with torch_npu's own allocator bit for bit.

    All results are kept until the end, so memory that is used again too early would change one of them.
    """
    ours = run(HUNDREDS + """
torch.npu.synchronize()
assert acl.torch.pools()[0].check() == 0
""")
    theirs = run(HUNDREDS, start=START + """
import acl.adapters._preload
acl.adapters._preload.preload()
import torch
import torch.nn as nn
torch.manual_seed(0)
torch.set_grad_enabled(False)
""")
    assert ours == theirs


def test_forward_passes_on_several_streams_equal_the_cpus(run) -> None:
    run(NETS + """
streams = [torch.npu.Stream() for _ in range(3)]
kept = []
torch.npu.synchronize()
for step in range(90):
    with torch.npu.stream(streams[step % 3]):
        kept.append(forward(1 + step % 23))
for stream in streams:
    stream.synchronize()
for cpu, found in kept:
    assert torch.allclose(cpu, found.cpu(), atol=5e-3)
parts = acl.torch.pools()[0].stats().streams
assert {part.kind for part in parts} == {"framework"} and len(parts) >= 4
""")


def test_a_training_step_equals_the_cpus(run) -> None:
    run("""
torch.set_grad_enabled(True)
import copy
net = nn.Linear(16, 4)
npu = copy.deepcopy(net).npu()
x = torch.randn(8, 16)
for module, data in ((net, x), (npu, x.npu())):
    for _ in range(3):
        loss = (module(data) ** 2).sum()
        module.zero_grad()
        loss.backward()
        for p in module.parameters():
            p.data = p.data - 0.01 * p.grad
for a, b in zip(net.parameters(), npu.parameters()):
    assert torch.allclose(a, b.cpu(), atol=1e-4)
""")


def test_tensors_on_two_devices_come_from_two_pools(run) -> None:
    run("""
host = torch.arange(100_000, dtype=torch.int32)
first = host.to("npu:0")
second = first.to("npu:1")
assert torch.equal(second.cpu(), host)
assert sorted(acl.torch.pools()) == [0, 1]
assert torch.npu.memory_allocated(1) == 400_384
del second
torch.npu.empty_cache()
assert torch.npu.memory_reserved(1) == 0 and torch.npu.memory_reserved(0) > 0
""")


def test_torch_tensors_without_elements_are_supported(run) -> None:
    run("""
empty = [torch.empty(0, device="npu") for _ in range(10)]
assert torch.cat([e.cpu() for e in empty]).numel() == 0
assert torch.npu.memory_allocated() == 0
""")


def test_threads_free_each_others_tensors(run) -> None:
    run("""
import queue, threading
handed, wrong = queue.Queue(maxsize=20), []
def make():
    torch.npu.set_device(0)
    for i in range(150):
        host = torch.full((1000 + i,), i, dtype=torch.int32)
        handed.put((host, host.npu()))
    handed.put(None)
def take():
    torch.npu.set_device(0)
    while (pair := handed.get()) is not None:
        if not torch.equal(pair[1].cpu(), pair[0]):
            wrong.append(pair[0][0])
        del pair
threads = [threading.Thread(target=work) for work in (make, take, make, take)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not wrong
gc.collect()
assert torch.npu.memory_allocated() == 0
""")


# ---- memory


def test_torch_passes_with_repeated_shapes_make_no_driver_call(run) -> None:
    """After the warm-up, the simulator counts no call that allocates device memory."""
    run(NETS + """
for round in range(3):
    if round == 2:
        torch.npu.synchronize()
        sim.reset_counters()
    for tokens in (1, 9, 33, 17, 5, 48):
        forward(tokens)
    torch.npu.synchronize()
calls = sim.counters()
made = {name: calls.get(name, 0) for name in (
    "aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocPhysical", "aclrtMapMem", "aclrtFree", "aclrtFreePhysical",
    "aclrtUnmapMem", "aclrtReserveMemAddress")}
assert not any(made.values()), made
""")


@BOTH
def test_torch_memory_statistics_describe_the_pool(run, shim: bool) -> None:
    run("""
assert torch.npu.memory_allocated() == torch.npu.memory_reserved() == 0
blocks = [torch.empty(size, dtype=torch.uint8, device="npu") for size in (100, 1000, 3 * MIB)]
stats = torch.npu.memory_stats()
rounded = [512, 1536, 3 * MIB + 512]                    # 32 bytes of padding, then up to 512
assert torch.npu.memory_allocated() == sum(rounded)
assert stats["requested_bytes.all.current"] == 1100 + 3 * MIB
assert stats["allocation.small_pool.current"] == 2 and stats["allocation.large_pool.current"] == 1
assert stats["allocated_bytes.large_pool.current"] == rounded[2]
assert torch.npu.memory_reserved() == sim.physical_bytes() == 6 * MIB
del blocks[2]
assert torch.npu.memory_allocated() == 2048 and torch.npu.max_memory_allocated() == sum(rounded)
torch.npu.reset_peak_memory_stats()
assert torch.npu.max_memory_allocated() == 2048
torch.npu.reset_accumulated_memory_stats()
assert torch.npu.memory_stats()["allocation.all.allocated"] == 0
assert "2.0" in torch.npu.memory_summary() or "2048" in torch.npu.memory_summary()
segments = torch.npu.memory_snapshot()
assert sum(one["allocated_size"] for one in segments) == 2048
assert sum(one["total_size"] for one in segments) == 6 * MIB
assert {block["state"] for one in segments for block in one["blocks"]} == {"active_allocated", "inactive"}
whole = torch.npu.memory._snapshot()
assert whole["segments"] == segments
""", shim=shim)


@BOTH
def test_empty_cache_gives_everything_back(run, shim: bool) -> None:
    run(NETS + """
base = torch.npu.memory_allocated()
for tokens in (5, 30, 11):
    forward(tokens)
free_before = torch.npu.mem_get_info()[0]
big = torch.empty(50 * MIB, dtype=torch.uint8, device="npu")
del big
torch.npu.empty_cache()
assert torch.npu.memory_allocated() == base
assert torch.npu.memory_reserved() == 2 * MIB < sim.physical_peak() - 50 * MIB
assert sim.physical_bytes() < 3 * MIB                    # operators have a little of their own
cpu, found = forward(7)
assert torch.allclose(cpu, found.cpu(), atol=5e-3)
""", shim=shim)


@BOTH
def test_torch_can_allocate_again_after_an_out_of_memory_error(run, shim: bool) -> None:
    expected = "torch.OutOfMemoryError" if shim else "RuntimeError"
    run(NETS + f"""
keep = [torch.empty(100 * MIB, dtype=torch.uint8, device="npu") for _ in range(9)]
for _ in range(3):
    try:
        torch.empty(300 * MIB, dtype=torch.uint8, device="npu")
    except {expected} as error:
        assert "300.00 MiB" in str(error), error
    else:
        raise AssertionError("no error")
assert torch.npu.memory_stats()["num_ooms"] == 3
cpu, found = forward(9)
assert torch.allclose(cpu, found.cpu(), atol=5e-3)
del keep[:4]
assert torch.empty(300 * MIB, dtype=torch.uint8, device="npu").shape[0] == 300 * MIB
""", shim=shim, ACL_SIM_MEMORY=str(1 << 30))


@BOTH
def test_allocation_short_of_memory_takes_pages_freed_on_another_stream(run, shim: bool) -> None:
    """The task queue of torch is drained first; only then does the other stream get the pages."""
    run("""
stream = torch.npu.Stream()
held = torch.empty(700 * MIB, dtype=torch.uint8, device="npu")
held.fill_(3)
del held
with torch.npu.stream(stream):
    other = torch.empty(600 * MIB, dtype=torch.uint8, device="npu")
    other[:1000].fill_(7)
torch.npu.synchronize()
assert int(other[:1000].cpu().sum()) == 7000
assert torch.npu.memory_stats()["num_ooms"] == 0
""", shim=shim, ACL_SIM_MEMORY=str(1 << 30))


def test_memory_fraction_of_torch_limits_the_pool(run) -> None:
    run("""
acl.torch.pools()
torch.npu.set_per_process_memory_fraction(0.25)
assert abs(torch.npu.get_per_process_memory_fraction() - 0.25) < 1e-6
try:
    torch.empty(300 * MIB, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    assert "limit is 256.00 MiB" in str(error)
torch.empty(200 * MIB, dtype=torch.uint8, device="npu")
""", ACL_SIM_MEMORY=str(1 << 30))


def test_torch_uses_a_pool_made_by_the_user(run) -> None:
    assert run(START + """
pool = acl.Pool(0, limit="64MiB")
acl.torch.install(pool)
import torch
assert acl.torch.pools() == {0: pool}
held = torch.empty(20 * MIB, dtype=torch.uint8, device="npu")
assert pool.stats().requested == 20 * MIB + 32
try:
    torch.empty(60 * MIB, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError:
    print("caught")
""", start="") == "caught"


# ---- the task queue


@pytest.mark.parametrize("seed", range(3))
def test_trims_take_no_page_that_queued_tasks_still_use(run, seed: int) -> None:
    """Tensors are freed at once, but their operators are submitted late and run slowly.

    Trims and slow allocations happen meanwhile.  If a page were given away before the queue is empty, an operator would
    write to freed memory.
    """
    run(NETS + f"""
import random
numbers = random.Random({seed})
pool = acl.torch.pools().get(0)
second = torch.npu.Stream()
torch.npu.synchronize()
big_npu = torch.randn(256, 256).npu()
for step in range(120):
    with torch.npu.stream(second if step % 3 == 0 else torch.npu.default_stream()):
        rows = numbers.choice([64, 700, 3000])
        x = torch.full((rows, 256), 0.5, device="npu")
        for _ in range(4):
            x = torch.relu(x + 0.25) * 0.5
        y = x @ big_npu if rows < 1000 else x
    pool = acl.torch.pools()[0]
    what = numbers.randrange(4)
    if what == 0:
        pool.trim()
    elif what == 1:
        pool.decay_tick()
    elif what == 2:
        pool.trim(idle=True)
    if step % 10 == 0:
        torch.npu.synchronize()
        expected = 0.5
        for _ in range(4):
            expected = (expected + 0.25) * 0.5
        assert torch.allclose(x.cpu(), torch.full((rows, 256), expected)), step
    del x, y
torch.npu.synchronize()
assert pool.check() == 0
stats = pool.stats()
assert sum(part.donated + part.syncs for part in stats.streams) == 0
assert stats.driver_calls["aclrtUnmapMem"] == 0             # a free page may get a second address, that is all
""", ACL_SIM_LATENCY="pcie")


@BOTH
def test_torch_tensor_used_on_another_stream_is_reused_only_after_that_use(run, shim: bool) -> None:
    run("""
def states(address):
    return [b["state"] for s in torch.npu.memory_snapshot() for b in s["blocks"] if b["address"] == address]

import threading
side, gate = torch.npu.Stream(), threading.Event()
x = torch.ones(1000, device="npu")
side.wait_stream(torch.npu.current_stream())
torch.npu.synchronize()
acl.Stream.from_handle(side.npu_stream).launch(gate.wait, 30)
with torch.npu.stream(side):
    y = x * 3
x.record_stream(side)
address = x.data_ptr()
del x
assert states(address) == ["active_pending_free"]
assert torch.empty(1000, device="npu").data_ptr() != address
gate.set()
torch.npu.current_stream().wait_stream(side)
assert float(y.cpu().sum()) == 3000
torch.npu.empty_cache()
assert states(address) != ["active_pending_free"]
""", shim=shim)


def test_tensors_recorded_on_another_stream_are_freed_without_a_synchronisation(run) -> None:
    """The test makes 200 tensors of 4 MiB and records each on a second stream; only a few are alive at a time.

    Less than 200 MiB is ever reserved, so the memory of freed tensors is used again without a synchronisation.
    """
    run("""
side, kept = torch.npu.Stream(), []
for step in range(200):
    x = torch.full((MIB,), float(step), device="npu")
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        y = x * 2
    x.record_stream(side)
    del x
    kept.append((step, y))
    if len(kept) > 4:
        number, y = kept.pop(0)
        torch.npu.current_stream().wait_stream(side)
        assert bool((y[:5].cpu() == 2 * number).all()), number
    del y
assert torch.npu.max_memory_reserved() < 200 * MIB, torch.npu.max_memory_reserved()
""")


def test_a_graph_is_refused_instead_of_corrupted(run) -> None:
    run("""
graph, x = torch.npu.NPUGraph(), torch.ones(10, device="npu")
try:
    with torch.npu.graph(graph):
        y = x + 1
except RuntimeError as error:
    assert "acl.torch.install" in str(error), error
else:
    raise AssertionError("captured")
""", TORCHELASTIC_ERROR_FILE="")


# ---- installing


def test_install_after_the_first_torch_tensor_is_refused(run) -> None:
    assert run(START + """
import acl.adapters._preload
acl.adapters._preload.preload()
import torch
torch.empty(10, device="npu")
try:
    acl.torch.install(shim=False)
except RuntimeError as error:
    print("already" in str(error))
""", start="") == "True"


def test_torch_install_called_twice_installs_once(run) -> None:
    run("""
assert acl.torch.install() is installed
x = torch.ones(100, device="npu")
second = acl.Pool(1)
acl.torch.install(second)
assert acl.torch.pools()[1] is second
""")


@pytest.mark.parametrize("call", ["install", "mem_pool"])
def test_torch_stays_on_its_device_whichever_pools_are_made(run, call: str) -> None:
    run(f"""
import aclpool as acl
import acl.torch
import torch
if {call!r} == "install":
    acl.torch.install([acl.Pool(0), acl.Pool(1)])
else:
    memories = [acl.torch.mem_pool(acl.Pool(n)) for n in (0, 1)]
assert torch.empty(1, device="npu").device.index == 0 == acl.Device.current().ordinal
torch.npu.set_device(1)
x = torch.empty(1, device="npu")
{"acl.torch.install()" if call == "install" else "memories.append(acl.torch.mem_pool(acl.Pool(0)))"}
assert torch.empty(1, device="npu").device.index == 1 == acl.Device.current().ordinal
with acl.Device(0):
    acl.Pool(0)
assert acl.Device.current().ordinal == 1
""", start="")


def test_torch_install_names_an_argument_that_is_not_a_pool(run) -> None:
    run("""
import aclpool as acl
for wrong in (3, [acl.Pool(0), "second"]):
    for call in (acl.torch.install, acl.torch.mem_pool):
        try:
            call(wrong)
        except TypeError as error:
            assert "pool" in str(error) and type(wrong).__name__ in str(error) or "not str" in str(error), error
        else:
            raise AssertionError(wrong)
assert acl.torch.pools() == {}              # nothing was put in place by half
""", start="")


def test_torch_install_without_a_compiler_names_the_lost_features(run, tmp_path: Path) -> None:
    out = run("""
import warnings
import aclpool as acl
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    installed = acl.torch.install()
assert not installed.shim and len(installed.lost) == 3
print(*[w.message for w in caught if "no C++ part" in str(w.message)])
import torch
assert torch.ones(3, device="npu").sum().item() == 3
assert torch.npu.memory_allocated() >= 0
""", start="", CXX="no-such-compiler", TORCH_EXTENSIONS_DIR=str(tmp_path))
    assert "torch.OutOfMemoryError" in out


def test_torch_pluggable_allocator_works_with_the_c_symbols_alone(run) -> None:
    """Use the C symbols as a program does that creates its own NPUPluggableAllocator."""
    run(START + """
path = acl.torch.allocator_path()
import torch, torch_npu
made = torch_npu.npu.memory.NPUPluggableAllocator(path, "aclpool_malloc", "aclpool_free")
torch_npu.npu.memory.change_current_allocator(made)
x = torch.arange(1000).npu()
assert torch.equal((x + 1).cpu(), torch.arange(1, 1001))
assert acl.torch.pools()[0].stats().allocated > 0
""", start="")


# ---- MemPool


MEMPOOL = START + """
pool = acl.Pool(0, limit="256MiB")
memory = acl.torch.mem_pool(pool)
import torch
import torch.nn as nn
torch.set_grad_enabled(False)
"""


def test_torch_mem_pool_serves_tensors_made_inside_its_block(run) -> None:
    run(NETS + """
assert torch.npu.memory_allocated() > 0 and pool.stats().requested == 0
with torch.npu.use_mem_pool(memory):
    results = [forward(tokens) for tokens in (3, 30, 11)]
assert pool.stats().requested >= 2 * MIB
for cpu, found in results:
    assert torch.allclose(cpu, found.cpu(), atol=5e-3)
assert torch.npu.memory_stats()["allocation.all.current"] > 0
""", start=MEMPOOL)


def test_a_mem_pool_out_of_memory_is_torchs_own_error(run) -> None:
    run("""
with torch.npu.use_mem_pool(memory):
    held = torch.empty(200 * MIB, dtype=torch.uint8, device="npu")
    try:
        torch.empty(100 * MIB, dtype=torch.uint8, device="npu")
    except torch.OutOfMemoryError:
        print("caught")
    else:
        raise AssertionError("no error")
outside = torch.empty(100 * MIB, dtype=torch.uint8, device="npu")
""", start=MEMPOOL)


def test_torch_mem_pool_returns_its_memory_when_it_ends(run) -> None:
    run("""
with torch.npu.use_mem_pool(memory):
    held = torch.empty(100 * MIB, dtype=torch.uint8, device="npu")
assert pool.stats().requested > 100 * MIB
del held, memory
gc.collect()
torch.npu.empty_cache()
assert pool.stats().requested == 0, pool.stats().requested
assert pool.trim() > 100 * MIB and sim.physical_bytes() < 10 * MIB
""", start=MEMPOOL)


def test_torch_mem_pools_each_allocate_from_their_own_pool(run) -> None:
    run("""
other = acl.Pool(0)
second = acl.torch.mem_pool(other)
with torch.npu.use_mem_pool(memory):
    a = torch.ones(5 * MIB, device="npu")
with torch.npu.use_mem_pool(second):
    b = torch.ones(9 * MIB, device="npu")
assert 20 * MIB <= pool.stats().requested <= 24 * MIB
assert 36 * MIB <= other.stats().requested <= 40 * MIB
assert float(a.cpu().sum() + b.cpu().sum()) == 14 * MIB
""", start=MEMPOOL)


# ---- torch's own uses of the allocator: storages, checkpoints, torch.accelerator


@BOTH
def test_storages_and_checkpoints_come_from_the_pool(run, tmp_path: Path, shim: bool) -> None:
    run(f"""
import pickle
file = {str(tmp_path / "x.pt")!r}
x = torch.arange(8.0).npu()
torch.save({{"x": x}}, file)
for options in ({{}}, {{"weights_only": False}}, {{"map_location": "npu:0"}}):
    found = torch.load(file, **options)["x"]
    assert found.device.type == "npu" and torch.equal(found.cpu(), x.cpu()), options
assert torch.equal(pickle.loads(pickle.dumps(x)).cpu(), x.cpu())
before = torch.npu.memory_allocated()
storage = torch.UntypedStorage(16 * MIB, device="npu")
assert (storage.nbytes(), torch.npu.memory_allocated() - before) == (16 * MIB, 16 * MIB + 512)
assert acl.torch.pools()[0].stats().reserved >= 16 * MIB
del storage
assert torch.npu.memory_allocated() == before
""", shim=shim)


def test_torch_accelerator_answers_for_the_pool(run) -> None:
    run("""
x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
    assert getattr(torch.accelerator, name)() == getattr(torch.npu, name)() > 0, name
found, expected = torch.accelerator.memory_stats(), torch.npu.memory_stats()
common = set(found) & set(expected)
assert len(common) > 50 and {key: found[key] for key in common} == {key: expected[key] for key in common}
del x
torch.accelerator.empty_cache()
torch.accelerator.reset_peak_memory_stats()
torch.accelerator.reset_accumulated_memory_stats(0)
assert torch.accelerator.memory_stats()["allocated_bytes.all.allocated"] == 0
assert torch.accelerator.memory_reserved() == torch.accelerator.max_memory_reserved() == 0
""")


@BOTH
def test_torch_memory_statistics_are_consistent_with_the_pool(run, shim: bool) -> None:
    run("""
kept = [torch.empty(n, dtype=torch.uint8, device="npu") for n in (100, 5000, 900_000, 3 * MIB, 17 * MIB)]
del kept[1::2]
for turn in range(2):
    stats = torch.npu.memory_stats_as_nested_dict()
    for name in ("reserved_bytes", "segment"):
        whole, small, large = (stats[name][kind] for kind in ("all", "small_pool", "large_pool"))
        for key in ("current", "peak", "allocated", "freed"):
            assert whole[key] == small[key] + large[key], (name, key, stats[name])
        assert whole["peak"] >= whole["current"]
        if not turn:
            assert whole["current"] == whole["allocated"] - whole["freed"], (name, whole)
    for kind in ("all", "small_pool", "large_pool"):
        assert stats["reserved_bytes"][kind]["current"] >= stats["allocated_bytes"][kind]["current"], (kind, stats)
        assert stats["segment"][kind]["current"] * 2 * MIB == stats["reserved_bytes"][kind]["current"]
    assert "NPU reserved segments" in torch.npu.memory_summary()
    kept.clear()
    torch.npu.empty_cache()
    torch.npu.reset_accumulated_memory_stats()
""", shim=shim)


def test_a_fraction_never_widens_the_owners_limit(run) -> None:
    run("""
pool = acl.torch.pools()[0]
total = torch.npu.mem_get_info()[1]
for fraction, expected in ((1.0, 200 * MIB), (64 * MIB / total, 64 * MIB), (0.5, 200 * MIB)):
    torch.npu.set_per_process_memory_fraction(fraction)
    assert abs(pool.limit - expected) < 2, (fraction, pool.limit)
pool.limit = "100MiB"                   # the owner's own word counts at once, and from then on
assert pool.limit == 100 * MIB
torch.npu.set_per_process_memory_fraction(1.0)
assert pool.limit == 100 * MIB
""", start=INSTALLED.replace("install(shim={shim})", "install(acl.Pool(0, limit='200MiB'), shim={shim})"))


@BOTH
def test_a_forked_child_is_told_to_use_spawn(run, shim: bool) -> None:
    out = run("""
import os
x = torch.ones(3).npu()
torch.npu.synchronize()
child = os.fork()
if child == 0:
    try:
        torch.ones(4, device="npu")
    except RuntimeError as error:
        print(type(error).__name__, str(error).splitlines()[0], flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert (x + 1).cpu().tolist() == [2, 2, 2]
""", shim=shim)
    assert "RuntimeError aclpool: device 0 was used before this process was forked" in out
    assert "'spawn'" in out


# ---- reports about the pool that install() made


def test_pool_made_for_torch_is_visible_to_metrics_from_its_first_block(run, tmp_path: Path) -> None:
    out = run("""
import atexit
x = torch.empty(MIB, dtype=torch.uint8, device="npu")
names = {point["attributes"].get("pool") for one in acl.metrics.snapshot() for point in one["points"]}
assert "pool-0" in names, names
assert [row.name for row in acl.memory_ledger(0).rows if row.owner == "pool"][:1] == ["pool-0"]
y = torch.empty(MIB, dtype=torch.uint8, device="npu:1")
assert {pool.device for pool in acl.pool._pool.open_pools()} == {0, 1}
""", start=START + INSTALLED.removeprefix(START).replace("torch.npu.set_device(0)", ""),
        ACL_POOL_RECORD=f"{tmp_path}/run.npz,stacks=python")
    assert out == ""
    from acl.tools.replay.trace import load_trace

    sizes = load_trace(tmp_path / "run.npz").size.tolist()
    assert [size >> 10 for size in sizes] == [1 << 10], sizes       # only the first: `y` is on device 1


def test_tensors_have_python_stacks_in_recordings(run) -> None:
    run("""
pool = acl.torch.pools()[0]
def layer():
    return torch.empty(5 * MIB, dtype=torch.uint8, device="npu")
with pool.record(stacks="python") as recording:
    x = layer()
events = [event for event in recording.events if event.kind == "alloc"]
assert [frame[2] for frame in events[0].stack][:2] == ["layer", "<module>"], events[0].stack
with pool.track():
    y = layer()
assert "in layer" in pool.leaks().text()
""", start=INSTALLED.replace("torch.manual_seed", "torch.empty(8, device='npu'); torch.manual_seed"))


def test_out_of_memory_in_a_mem_pool_names_the_pools_limit(run) -> None:
    run("""
pool = acl.Pool(0, limit="64MiB", name="mine")
memory = acl.torch.mem_pool(pool)
import torch
with torch.npu.use_mem_pool(memory):
    try:
        kept = [torch.empty(10 * MIB, dtype=torch.uint8, device="npu") for _ in range(20)]
        raise SystemExit("no error")
    except torch.OutOfMemoryError as error:
        text = str(error)
assert "its limit is 64.00 MiB" in text, text
assert str(pool.last_oom()) in text and "of mine" in text, text
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="npu")
    raise SystemExit("no error")
except torch.OutOfMemoryError as error:
    assert "64.00 MiB" not in str(error), error        # torch's own memory, torch's own words
""", start=START)
