"""A program, not a test: vLLM-Ascend's own camem.py on our module, with torch_npu on the simulator.

Its arguments are the folder with `device_allocator/camem.py` of the package from PyPI, and the source of the
memory: "segments" (allocated from the driver) or "pool".  The only stand-in for a part of vLLM is the logger;
`vllm_ascend/__init__.py`, which imports vLLM, is left out.
"""

import gc
import logging
import sys
import types

import torch
import torch_npu  # noqa: F401

import acl
import acl.sim
import acl.vllm

MIB = 1 << 20


def stand_in(folder: str) -> None:
    vllm = types.ModuleType("vllm")
    vllm.logger = types.ModuleType("vllm.logger")  # type: ignore[attr-defined]
    vllm.logger.logger = logging.getLogger("vllm")  # type: ignore[attr-defined]
    sys.modules["vllm"], sys.modules["vllm.logger"] = vllm, vllm.logger  # type: ignore[attr-defined]
    package = types.ModuleType("vllm_ascend")
    package.__path__ = [folder]
    sys.modules["vllm_ascend"] = package


def pattern(count: int, seed: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.int32) * 7 + seed


def main() -> None:
    stand_in(sys.argv[1])
    shared = acl.Pool(0, name="vllm") if sys.argv[2] == "pool" else None
    path = acl.vllm.install(shared)
    from vllm_ascend.device_allocator import camem  # type: ignore[import-not-found]

    assert camem.lib_name == path, (camem.lib_name, path)
    torch.npu.set_device(0)
    torch.empty(1, device="npu")
    torch.npu.empty_cache()
    pool = camem.CaMemAllocator.get_instance()
    held = acl.sim.physical_bytes()
    with pool.use_memory_pool("weights"):
        weights = [pattern(3 * MIB, seed).npu() for seed in range(6)]
    with pool.use_memory_pool("kv_cache"):
        cache = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
        cache.copy_(torch.full((64 * MIB,), 5, dtype=torch.uint8))
    with pool.use_memory_pool("sleep_persistent"):
        stays = pattern(1000, 99).npu()
    addresses = [tensor.data_ptr() for tensor in [*weights, cache, stays]]
    awake = acl.sim.physical_bytes() - held
    assert awake == pool.get_current_usage(), (awake, pool.get_current_usage())
    assert awake >= 136 * MIB
    tags = acl.memory_ledger(0).tags()
    assert sum(tags.values()) == awake and {"weights", "kv_cache", "sleep_persistent"} <= set(tags), tags

    for turn in range(3):
        pool.sleep(offload_tags=("weights",))
        asleep = acl.sim.physical_bytes() - held
        assert asleep < 24 * MIB, asleep  # only the persistent memory is left
        pool.wake_up(tags=["weights"])
        for seed, tensor in enumerate(weights):
            assert torch.equal(tensor.cpu(), pattern(3 * MIB, seed)), (turn, seed)
        assert acl.sim.physical_bytes() - held < awake
        pool.wake_up(tags=["kv_cache"])
        assert acl.sim.physical_bytes() - held == awake
        cache.copy_(torch.full((64 * MIB,), turn, dtype=torch.uint8))
        assert int(cache[12345].cpu()) == turn
    assert addresses == [tensor.data_ptr() for tensor in [*weights, cache, stays]]
    assert torch.equal(stays.cpu(), pattern(1000, 99))

    # Destroy the pools long after `use_memory_pool` has returned.  (vLLM-Ascend's own module would then free memory
    # through functions that no longer exist.)
    del weights, cache, stays, tensor
    pool.allocator_and_pools.clear()
    gc.collect()
    torch.npu.empty_cache()
    if shared is not None:
        assert (shared.stats().allocated, shared.check()) == (0, 0)
        shared.close()
    print("segments left", len(acl.vllm._ours().segments()), "bytes left", acl.sim.physical_bytes() - held)


main()
