"""torch_npu from PyPI on the simulator, started by `aclpool sim run`: an optional lane.

Each test runs in its own process, because torch_npu has one state in a process.  The tests are skipped
if torch_npu is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = [
    pytest.mark.torch_npu,
    pytest.mark.subprocess_heavy,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed"),
]

START = """
import torch
import torch_npu
torch.npu.set_device(0)
"""


def program(code: str, *options: str, start: str = START, **variables: str) -> str:
    """Run code with torch_npu on the simulator, check that it exits cleanly, and return its output."""
    line = [sys.executable, "-m", "acl.tools.sim", *options, "--", sys.executable, "-c", start + textwrap.dedent(code)]
    done = subprocess.run(line, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "[ERROR]" not in done.stderr
    return _answers(done.stdout)


def _answers(text: str) -> str:
    """Return the program's output without torch_npu's warning that CANN is missing."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("Warning: "))


def test_torch_npu_is_imported_and_counts_devices() -> None:
    out = program(
        "import torch, torch_npu; print(torch.npu.is_available(), torch.npu.device_count())", "--devices", "3", start=""
    )
    assert out.split() == ["True", "3"]


def test_torch_npu_is_not_available_without_a_device() -> None:
    out = program("import torch, torch_npu; print(torch.npu.is_available())", "--devices", "0", start="")
    assert out.split() == ["False"]


@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend910_9391", "Ascend310P3"])
def test_torch_empty_works_on_each_chip(soc: str) -> None:
    code = "t = torch.empty(1000, device='npu'); print(t.device, t.shape[0], torch.npu.get_device_name(0))"
    out = program(code, "--soc", soc)
    assert out.split() == ["npu:0", "1000", soc]


def test_torch_npu_copies_keep_the_data() -> None:
    program("""
        for kind in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
            host = (torch.arange(4099) % 2).to(kind)
            device = host.npu()
            other = torch.empty_like(device)
            other.copy_(device)
            assert torch.equal(other.cpu(), host), kind
            assert torch.equal(device.to("cpu"), host), kind
    """)


def test_pinned_copies_are_asynchronous() -> None:
    program("""
        host = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
        back = torch.empty(1 << 20, dtype=torch.int32).pin_memory()
        stream = torch.npu.Stream()
        with torch.npu.stream(stream):
            device = host.to("npu", non_blocking=True)
            back.copy_(device, non_blocking=True)
        stream.synchronize()
        assert torch.equal(back, host)
    """)


def test_torch_npu_streams_and_events_order_work() -> None:
    program("""
        first, second = torch.npu.Stream(), torch.npu.Stream()
        start, middle, end = (torch.npu.Event(enable_timing=True) for _ in range(3))
        host = torch.arange(1 << 18, dtype=torch.float32).pin_memory()
        back = torch.empty(1 << 18).pin_memory()
        with torch.npu.stream(first):
            start.record()
            device = host.to("npu", non_blocking=True)
            middle.record()
        with torch.npu.stream(second):
            second.wait_event(middle)
            back.copy_(device, non_blocking=True)
            end.record()
        end.synchronize()
        assert start.query() and end.query()
        second.synchronize()
        assert second.query()
        assert start.elapsed_time(end) >= 0
        assert torch.equal(back, host)
    """)


def test_torch_npu_empty_cache_returns_reserved_memory() -> None:
    program("""
        free, total = torch.npu.mem_get_info()
        assert free == total
        blocks = [torch.empty(5 << 20, device="npu") for _ in range(10)]
        assert torch.npu.memory_allocated() >= 200 << 20
        assert torch.npu.memory_reserved() >= torch.npu.memory_allocated()
        assert torch.npu.mem_get_info()[0] == total - torch.npu.memory_reserved()
        assert torch.npu.memory_snapshot()
        del blocks
        torch.npu.empty_cache()
        assert torch.npu.memory_reserved() == 0
        assert torch.npu.mem_get_info()[0] == total
    """)


def test_torch_npu_expandable_segments_work() -> None:
    code = """
        total = torch.npu.mem_get_info()[1]
        for round in range(3):
            blocks = [torch.empty((round + i + 1) << 20, dtype=torch.uint8, device="npu") for i in range(20)]
            host = torch.arange(1 << 20, dtype=torch.int32)
            assert torch.equal(host.npu().cpu(), host)
            del blocks[::2]
            torch.npu.empty_cache()
        del blocks
        torch.npu.empty_cache()
        assert torch.npu.memory_reserved() == 0
        assert torch.npu.mem_get_info()[0] == total
    """
    line = [sys.executable, "-m", "acl.tools.sim", "--counters", "-", "--", sys.executable, "-c",
            START + textwrap.dedent(code)]
    variables = {**os.environ, "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}
    done = subprocess.run(line, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "aclrtMapMem" in done.stderr, "it fell back to segments of aclrtMalloc"


@pytest.mark.parametrize("segments", ["expandable_segments:False", "expandable_segments:True"])
def test_out_of_memory_is_torchs_own_error(segments: str) -> None:
    code = """
        try:
            torch.empty(3 << 30, dtype=torch.uint8, device="npu")
        except torch.OutOfMemoryError as error:
            print("caught", "1024.00 MiB" in str(error) or "1.00 GiB" in str(error))
        print(torch.empty(1 << 20, dtype=torch.uint8, device="npu").shape[0])
    """
    out = subprocess.run(
        [sys.executable, "-m", "acl.tools.sim", "--capacity", "1GiB", "--", sys.executable, "-c",
         START + textwrap.dedent(code)],
        env={**os.environ, "PYTORCH_NPU_ALLOC_CONF": segments}, capture_output=True, text=True, timeout=300,
    )
    assert out.returncode == 0, out.stderr
    assert _answers(out.stdout).split() == ["caught", "True", "1048576"]


def test_torch_npu_tensors_can_be_used_on_two_devices() -> None:
    program("""
        host = torch.arange(100000, dtype=torch.int32)
        first = host.to("npu:0")
        second = first.to("npu:1")
        assert second.device.index == 1
        assert torch.equal(second.cpu(), host)
        with torch.npu.device(1):
            assert torch.npu.current_device() == 1
            third = torch.empty(10, device="npu")
        assert third.device.index == 1
        assert torch.npu.memory_allocated(1) > 0
        torch.npu.synchronize(1)
    """)


def test_torch_npu_can_be_used_by_several_threads() -> None:
    program("""
        import threading
        wrong = []
        def work(number):
            torch.npu.set_device(number % 2)
            stream = torch.npu.Stream()
            with torch.npu.stream(stream):
                for i in range(50):
                    host = torch.full((1000 + number,), i, dtype=torch.int32)
                    if not torch.equal(host.npu().cpu(), host):
                        wrong.append((number, i))
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not wrong
    """)


def test_process_exit_with_queued_torch_npu_work_is_clean() -> None:
    program("""
        host = torch.ones(1 << 24).pin_memory()
        keep = [torch.npu.Stream() for _ in range(8)]
        for stream in keep:
            with torch.npu.stream(stream):
                device = host.to("npu", non_blocking=True)
                event = torch.npu.Event()
                event.record()
    """)
