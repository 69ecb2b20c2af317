"""Argument rules of memory: each row is a call, its arguments, and the code that it returns.

The codes are those that the real runtime returned (shared/probes) or that its sources state; a few are
from the documentation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from support.calls import api
from support.memory import MemoryScene
from support.rules import code_in_new_thread, code_of

P, RT, DEVICE, HANDLE = 100000, 107000, 107001, 107017
NO_CONTEXT, OTHER_CONTEXT, MEMORY_TYPE, UNSUPPORTED, NO_MEMORY = 107002, 107003, 107016, 207000, 207001
NOT_REGISTERED, REGISTERED = 507911, 507910
NULL = None
MOST = 2**64 - 1


@pytest.fixture
def scene() -> Iterator[MemoryScene]:
    made = MemoryScene()
    yield made
    made.close()


ROWS: list[tuple[str, list[Any], int]] = [
    # The next rows test calls that allocate device memory.
    ("aclrtMalloc", [NULL, 16, 0], P),
    ("aclrtMalloc", ["out", 0, 0], P),
    ("aclrtMalloc", ["out", MOST, 0], P),
    ("aclrtMalloc", ["out", MOST - 32, 0], P),
    ("aclrtMalloc", ["out", 1 << 60, 0], NO_MEMORY),
    ("aclrtMallocAlign32", [NULL, 16, 0], P),
    ("aclrtMallocAlign32", ["out", 0, 0], P),
    ("aclrtMallocAlign32", ["out", MOST, 0], P),
    ("aclrtMallocCached", [NULL, 16, 0], P),
    ("aclrtMallocCached", ["out", 0, 0], P),
    ("aclrtMallocCached", ["out", MOST, 0], P),
    ("aclrtMallocWithCfg", [NULL, 16, 0, NULL], P),
    ("aclrtMallocWithCfg", ["out", 0, 0, NULL], P),
    ("aclrtMallocForTaskScheduler", [NULL, 16, 0, NULL], P),
    ("aclrtMallocForTaskScheduler", ["out", 0, 0, NULL], P),
    # The next rows test calls that free device and host memory.
    ("aclrtFree", [NULL], P),
    ("aclrtFree", ["garbage"], RT),
    ("aclrtFree", ["device+64"], RT),
    ("aclrtFree", ["device+512"], RT),
    ("aclrtFree", ["mapped"], RT),
    ("aclrtFreeWithDevSync", [NULL], P),
    ("aclrtFreeWithDevSync", ["garbage"], RT),
    ("aclrtFreeHost", [NULL], P),
    ("aclrtFreeHost", ["garbage"], RT),
    ("aclrtFreeHost", ["device"], RT),
    ("aclrtFreeHost", ["pinned+64"], RT),
    ("aclrtFreeHostWithDevSync", [NULL], P),
    ("aclrtFreeHostWithDevSync", ["garbage"], RT),
    # The next rows test calls that allocate and register host memory.
    ("aclrtMallocHost", [NULL, 16], P),
    ("aclrtMallocHost", ["out", 0], P),
    ("aclrtMallocHostWithCfg", [NULL, 16, NULL], P),
    ("aclrtMallocHostWithCfg", ["out", 0, NULL], P),
    ("aclrtMallocHostWithCfg", ["out", 16, "garbage"], RT),  # attrs NULL
    ("aclrtHostRegister", [NULL, 4096, 0, "out"], P),
    ("aclrtHostRegister", ["page", 4096, 0, NULL], P),
    ("aclrtHostRegister", ["page", 0, 0, "out"], P),
    ("aclrtHostRegister", ["page", MOST, 0, "out"], RT),
    ("aclrtHostRegister", ["page", 4096, 1, "out"], UNSUPPORTED),
    ("aclrtHostRegister", ["page", 4096, 2, "out"], UNSUPPORTED),
    ("aclrtHostRegister", ["page", 4096, 16, "out"], UNSUPPORTED),
    ("aclrtHostRegister", ["pinned", 4096, 0, "out"], REGISTERED),
    ("aclrtHostRegisterV2", [NULL, 4096, 2], P),
    ("aclrtHostRegisterV2", ["page", 0, 2], P),
    ("aclrtHostRegisterV2", ["page", 4096, 0], RT),
    ("aclrtHostRegisterV2", ["page", 4096, 1], RT),
    ("aclrtHostRegisterV2", ["page", 4096, 16], RT),
    ("aclrtHostRegisterV2", ["page", 4096, 0x11], RT),
    ("aclrtHostUnregister", [NULL], P),
    ("aclrtHostUnregister", ["page"], NOT_REGISTERED),
    ("aclrtHostUnregister", ["pinned"], NOT_REGISTERED),
    ("aclrtHostGetDevicePointer", [NULL, "out", 0], P),
    ("aclrtHostGetDevicePointer", ["page", NULL, 0], P),
    ("aclrtHostGetDevicePointer", ["page", "out", 1], P),
    ("aclrtHostGetDevicePointer", ["page", "out", 0], RT),
    # The next rows test queries of memory, and the calls for its caches and for peers.
    ("aclrtGetMemInfo", [1, NULL, "out"], P),
    ("aclrtGetMemInfo", [1, "out", NULL], P),
    ("aclrtGetMemInfo", [-1, "out", "host"], MEMORY_TYPE),
    ("aclrtGetMemInfo", [18, "out", "host"], MEMORY_TYPE),
    ("aclrtGetMemUsageInfo", [0, NULL, 1, "out"], P),
    ("aclrtGetMemUsageInfo", [0, "out", 1, NULL], P),
    ("aclrtGetMemUsageInfo", [99, "out", 1, "host"], DEVICE),
    ("aclrtGetMemUsageInfo", [0, "out", 0, "host"], RT),
    ("aclrtPointerGetAttributes", [NULL, "out"], P),
    ("aclrtPointerGetAttributes", ["device", NULL], P),
    ("aclrtMemGetAddressRange", [NULL, "out", "host"], P),
    ("aclrtMemGetAddressRange", ["garbage", "out", "host"], RT),
    ("aclrtMemGetAddressRange", ["free_place", "out", "host"], RT),
    ("aclrtMemGetAddressRange", ["device+100", NULL, NULL], 0),
    ("aclrtCheckMemType", [NULL, 1, 2, "out", 0], P),
    ("aclrtCheckMemType", ["host", 1, 2, NULL, 0], P),
    ("aclrtCheckMemType", ["host", 0, 2, "out", 0], RT),
    ("aclrtCheckMemType", ["host", 1, 0, "out", 0], RT),
    ("aclrtCheckMemType", ["host", 1, 1, "out", 0], RT),
    ("aclrtCheckMemType", ["host", 1, 2, "out", 1], RT),
    ("aclrtMemFlush", [NULL, 64], P),
    ("aclrtMemFlush", ["device", 0], P),
    ("aclrtMemFlush", ["host", 64], RT),
    ("aclrtMemInvalidate", [NULL, 64], P),
    ("aclrtMemInvalidate", ["device", 0], P),
    ("aclrtMemInvalidate", ["device", 1 << 30], RT),
    ("aclrtMemP2PMap", [NULL, 64, 1, 0], P),
    ("aclrtMemP2PMap", ["device", 0, 1, 0], P),
    ("aclrtMemP2PMap", ["device", 64, 1, 1], P),
    ("aclrtMemP2PMap", ["device", 64, 99, 0], DEVICE),
    ("aclrtMemP2PMap", ["device", 64, 1, 0], 0),
    # The next rows test copies; a copy of 0 bytes succeeds before any other check.
    ("aclrtMemcpy", [NULL, 0, NULL, 0, 99], 0),
    ("aclrtMemcpy", [NULL, 64, "host", 64, 1], P),
    ("aclrtMemcpy", ["device", 64, NULL, 64, 1], P),
    ("aclrtMemcpy", ["device", 64, "host", 64, 6], P),
    ("aclrtMemcpy", ["device", 64, "host", 64, -1], P),
    ("aclrtMemcpy", ["device", 63, "host", 64, 1], RT),
    ("aclrtMemcpy", ["device", 10, "device", 64, 3], RT),
    ("aclrtMemcpy", ["device", 64, "device", 64, 99], P),
    ("aclrtMemcpy", ["device", 64, "device", 64, 3], 0),
    ("aclrtMemcpy", ["device", 64, "host", 64, 4], 0),
    ("aclrtMemcpy", ["device", 64, "host", 64, 5], 0),
    ("aclrtMemcpy", ["device", MOST, "host", 64, 1], 0),  # a wrong destMax is not detected
    ("aclrtMemcpy", ["other+65536", 1 << 20, "host", 65536, 1], RT),  # past the allocation
    ("aclrtMemcpy", ["host", 1 << 20, "other+65500", 65536, 2], RT),
    ("aclrtMemcpy", ["free_place", 64, "host", 64, 1], RT),  # reserved, not mapped
    ("aclrtMemcpy", ["mapped+2097120", 64, "host", 64, 1], RT),  # beyond the end of a mapping
    ("aclrtMemcpyAsync", [NULL, 0, NULL, 0, 99, "garbage"], 0),
    ("aclrtMemcpyAsync", [NULL, 64, "pinned", 64, 1, "stream"], P),
    ("aclrtMemcpyAsync", ["device", 64, NULL, 64, 1, "stream"], P),
    ("aclrtMemcpyAsync", ["device", 64, "pinned", 64, 6, "stream"], P),
    ("aclrtMemcpyAsync", ["device", 64, "pinned", 64, 1, "dead"], HANDLE),
    ("aclrtMemcpyAsync", ["device", 63, "pinned", 64, 1, "dead"], HANDLE),
    ("aclrtMemcpyAsync", ["device", 63, "pinned", 64, 1, "stream"], RT),
    ("aclrtMemcpyAsync", ["pinned", 64, "pinned+64", 64, 0, "stream"], UNSUPPORTED),
    ("aclrtMemcpyAsync", ["pinned", 64, "pinned+64", 64, 4, "stream"], UNSUPPORTED),
    ("aclrtMemcpyAsync", ["pinned", 64, "pinned+64", 64, 1, "stream"], UNSUPPORTED),  # both addresses are known
    ("aclrtMemcpyAsync", ["device", 64, "host", 64, 2, "stream"], RT),  # only one is known: two kinds allowed
    ("aclrtMemcpyAsync", ["device", 64, "host", 64, 1, "stream"], 0),
    ("aclrtMemcpyAsync", ["device", 64, "pinned", 64, 2, "stream"], 0),
    ("aclrtMemcpyAsync", ["device", 64, "pinned", 64, 5, "stream"], 0),
    ("aclrtMemcpyAsync", ["other+65536", 1 << 20, "pinned", 65536, 1, NULL], RT),
    ("aclrtMemcpyAsyncWithCondition", [NULL, 0, NULL, 0, 99, "garbage"], 0),
    ("aclrtMemcpyAsyncWithCondition", [NULL, 64, "pinned", 64, 1, "stream"], P),
    ("aclrtMemcpyAsyncWithCondition", ["device", 64, NULL, 64, 1, "stream"], P),
    ("aclrtMemcpyAsyncWithCondition", ["device", 64, "pinned", 64, 6, "stream"], P),
    ("aclrtMemcpyAsyncWithCondition", ["device", 63, "pinned", 64, 1, "stream"], RT),
    ("aclrtMemcpyAsyncWithCondition", ["device", 64, "pinned", 64, 1, "garbage"], HANDLE),
    # The next rows test two-dimensional copies.
    ("aclrtMemcpy2d", [NULL, 64, "host", 64, 0, 4, 1], 0),
    ("aclrtMemcpy2d", [NULL, 64, "host", 64, 32, 0, 1], 0),
    ("aclrtMemcpy2d", [NULL, 64, "host", 64, 32, 4, 1], P),
    ("aclrtMemcpy2d", ["device", 64, NULL, 64, 32, 4, 1], P),
    ("aclrtMemcpy2d", ["device", 1 << 23, "host", 1 << 23, 5000001, 4, 1], RT),
    ("aclrtMemcpy2d", ["device", 64, "host", 64, 32, (5 << 20) + 1, 1], RT),
    ("aclrtMemcpy2d", ["device", 31, "host", 64, 32, 4, 1], P),
    ("aclrtMemcpy2d", ["device", 64, "host", 31, 32, 4, 1], P),
    ("aclrtMemcpy2d", ["device", 64, "host", 64, 32, 4, 0], P),
    ("aclrtMemcpy2d", ["device", 64, "host", 64, 32, 4, 5], P),
    ("aclrtMemcpy2d", ["device", 64, "host", 64, 32, 4, 1], 0),
    ("aclrtMemcpy2d", ["device", 1 << 40, "host", 64, 32, 4, 1], RT),
    ("aclrtMemcpy2d", ["device", MOST, "host", 64, 32, 4, 1], RT),
    ("aclrtMemcpy2dAsync", [NULL, 64, "pinned", 64, 0, 4, 1, "garbage"], 0),
    ("aclrtMemcpy2dAsync", [NULL, 64, "pinned", 64, 32, 4, 1, "stream"], P),
    ("aclrtMemcpy2dAsync", ["device", 64, NULL, 64, 32, 4, 1, "stream"], P),
    ("aclrtMemcpy2dAsync", ["device", 31, "pinned", 64, 32, 4, 1, "stream"], P),
    ("aclrtMemcpy2dAsync", ["device", 64, "pinned", 64, 32, 4, 5, "stream"], P),
    ("aclrtMemcpy2dAsync", ["device", 64, "pinned", 64, 32, 4, 1, "dead"], HANDLE),
    ("aclrtMemcpy2dAsync", ["device", 64, "pinned", 64, 32, 4, 1, NULL], 0),
    # The next rows test calls that set memory to a value.
    ("aclrtMemset", [NULL, 0, 0, 0], 0),
    ("aclrtMemset", [NULL, 64, 0, 64], P),
    ("aclrtMemset", ["device", 63, 0, 64], RT),
    ("aclrtMemset", ["device", 1 << 30, 0, 1 << 20], RT),
    ("aclrtMemset", ["pinned", 64, 0, 64], 0),
    ("aclrtMemsetAsync", [NULL, 0, 0, 0, "garbage"], 0),
    ("aclrtMemsetAsync", [NULL, 64, 0, 64, "stream"], P),
    ("aclrtMemsetAsync", ["device", 63, 0, 64, "stream"], RT),
    ("aclrtMemsetAsync", ["device", 64, 0, 64, "garbage"], HANDLE),
    ("aclrtMemsetAsync", ["device", 63, 0, 64, "garbage"], HANDLE),
    ("aclrtMemsetD32", [NULL, 64, 1, 4], P),
    ("aclrtMemsetD32", [NULL, 64, 1, 0], 0),
    ("aclrtMemsetD32", ["device+1", 64, 1, 4], P),
    ("aclrtMemsetD32", ["device+2", 64, 1, 4], P),
    ("aclrtMemsetD32", ["device", 15, 1, 4], P),
    ("aclrtMemsetD32", ["device", 1 << 20, 1, 1 << 62], RT),
    ("aclrtMemsetD32", ["host", 64, 1, 4], P),
    ("aclrtMemsetD32", ["device", 1 << 20, 1, 1 << 18], RT),
    ("aclrtMemsetD32Async", [NULL, 64, 1, 4, "stream"], P),
    ("aclrtMemsetD32Async", ["device+2", 64, 1, 4, "stream"], P),
    ("aclrtMemsetD32Async", ["device", 15, 1, 4, "stream"], P),
    ("aclrtMemsetD32Async", [NULL, 64, 1, 0, "stream"], 0),
    ("aclrtMemsetD32Async", ["device", 64, 1, 4, "dead"], HANDLE),
    # The next rows test copies whose addresses are given by pointers with offsets, or by a descriptor.
    ("aclrtMemcpyAsyncWithOffset", [NULL, 0, 0, NULL, 0, 0, 99, "garbage"], 0),
    ("aclrtMemcpyAsyncWithOffset", [NULL, 64, 0, "device", 16, 0, 6, "stream"], RT),
    ("aclrtMemcpyAsyncWithOffset", ["device", 64, 0, NULL, 16, 0, 6, "stream"], RT),
    ("aclrtMemcpyAsyncWithOffset", ["device", 8, 0, "device", 16, 0, 6, "stream"], RT),
    ("aclrtMemcpyAsyncWithOffset", ["device", 64, 64, "device", 16, 0, 6, "stream"], RT),
    ("aclrtMemcpyAsyncWithOffset", ["device", 64, 60, "device", 16, 0, 6, "stream"], RT),
    ("aclrtMemcpyAsyncWithOffset", ["device", 64, 0, "device", 16, 1 << 48, 6, "stream"], RT),
    ("aclrtMemcpyAsyncWithOffset", ["device", 64, 0, "device", 16, 0, 3, "stream"], RT),
    ("aclrtMemcpyAsyncWithOffset", ["device", 64, 0, "device", 16, 0, 6, "dead"], HANDLE),
    ("aclrtGetMemcpyDescSize", [6, NULL], P),
    ("aclrtGetMemcpyDescSize", [8, "out"], P),
    ("aclrtGetMemcpyDescSize", [-1, "out"], P),
    ("aclrtGetMemcpyDescSize", [3, "out"], UNSUPPORTED),
    ("aclrtGetMemcpyDescSize", [6, "out"], 0),
    ("aclrtSetMemcpyDesc", [NULL, 6, "device", "other", 64, NULL], P),
    ("aclrtSetMemcpyDesc", ["device", 8, "device", "other", 64, NULL], P),
    ("aclrtSetMemcpyDesc", ["device", 6, NULL, "other", 64, NULL], P),
    ("aclrtSetMemcpyDesc", ["device", 6, "device", NULL, 64, NULL], P),
    ("aclrtSetMemcpyDesc", ["device", 6, "device", "other", 0, NULL], P),
    ("aclrtSetMemcpyDesc", ["device", 6, "device", "other", 64, "out"], P),
    ("aclrtSetMemcpyDesc", ["device", 3, "device", "other", 64, NULL], UNSUPPORTED),
    ("aclrtSetMemcpyDesc", ["device+8", 6, "device", "other", 64, NULL], RT),
    ("aclrtSetMemcpyDesc", ["device", 6, "device", "other", 1 << 40, NULL], RT),
    ("aclrtSetMemcpyDesc", ["host", 6, "device", "other", 64, NULL], RT),
    ("aclrtSetMemcpyDesc", ["device", 6, "host", "other", 64, NULL], RT),
    ("aclrtSetMemcpyDesc", ["device", 6, "device", "pinned", 64, NULL], RT),
    ("aclrtMemcpyAsyncWithDesc", [NULL, 6, "stream"], P),
    ("aclrtMemcpyAsyncWithDesc", ["device", 8, "stream"], P),
    ("aclrtMemcpyAsyncWithDesc", ["device", 6, NULL], P),
    ("aclrtMemcpyAsyncWithDesc", ["device", 1, "stream"], UNSUPPORTED),
    ("aclrtMemcpyAsyncWithDesc", ["pinned", 6, "stream"], RT),
    ("aclrtMemcpyAsyncWithDesc", ["device", 6, "dead"], HANDLE),
    # The next rows test reductions.
    ("aclrtReduceAsync", [NULL, "other", 16, 10, 0, "stream", NULL], P),
    ("aclrtReduceAsync", ["device", NULL, 16, 10, 0, "stream", NULL], P),
    ("aclrtReduceAsync", ["device", "other", 16, 10, 0, "stream", "out"], P),
    ("aclrtReduceAsync", ["device", "other", 16, 10, -1, "stream", NULL], P),
    ("aclrtReduceAsync", ["device", "other", 16, 10, 12, "stream", NULL], P),
    ("aclrtReduceAsync", ["device", "other", 16, 10, 99, "stream", NULL], P),
    ("aclrtReduceAsync", ["device", "other", 16, 0, 0, "stream", NULL], RT),
    ("aclrtReduceAsync", ["device", "other", 16, 9, 0, "stream", NULL], RT),
    ("aclrtReduceAsync", ["device", "other", 16, 14, 0, "stream", NULL], RT),
    ("aclrtReduceAsync", ["device", "other", 16, 13, 0, "stream", NULL], UNSUPPORTED),
    ("aclrtReduceAsync", ["device", "other", 0, 10, 0, "stream", NULL], RT),
    ("aclrtReduceAsync", ["device", "other", 15, 10, 0, "stream", NULL], RT),
    ("aclrtReduceAsync", ["device", "other", 1 << 20, 10, 0, "stream", NULL], RT),
    ("aclrtReduceAsync", ["device", "other", 16, 10, 0, "dead", NULL], HANDLE),
    # The next rows test cache operations.
    ("aclrtCmoAsync", [NULL, 64, 0, "stream"], P),
    ("aclrtCmoAsync", ["device", 0, 0, "stream"], P),
    ("aclrtCmoAsync", ["device", 64, 4, "stream"], RT),
    ("aclrtCmoAsync", ["device", 64, -1, "stream"], RT),
    ("aclrtCmoAsync", ["host", 64, 0, "stream"], RT),
    ("aclrtCmoAsync", ["device", 1 << 20, 0, "stream"], RT),
    ("aclrtCmoAsync", ["device", 64, 0, "dead"], HANDLE),
    ("aclrtCmoAsync", ["device", 64, 0, NULL], 0),
    ("aclrtCmoAsyncWithBarrier", [NULL, 64, 0, 1, "stream"], P),
    ("aclrtCmoAsyncWithBarrier", ["device", 0, 0, 1, "stream"], RT),
    ("aclrtCmoAsyncWithBarrier", ["device", 64, 0, 1, "stream"], 0),
    ("aclrtCmoWaitBarrier", [NULL, "stream", 0], P),
    ("aclrtCmoWaitBarrier", ["garbage", "stream", 0], RT),  # no barrier named
    ("aclrtCmoGetDescSize", [NULL], RT),
    ("aclrtCmoSetDesc", [NULL, "device", 64], RT),
    ("aclrtCmoSetDesc", ["device", NULL, 64], RT),
    ("aclrtCmoSetDesc", ["device", "other", 0], RT),
    ("aclrtCmoSetDesc", ["device", "host", 64], RT),
    ("aclrtCmoSetDesc", ["host", "other", 64], RT),
    ("aclrtCmoAsyncWithDesc", [NULL, 0, "stream", NULL], RT),
    ("aclrtCmoAsyncWithDesc", ["device", 9, "stream", NULL], RT),
    ("aclrtCmoAsyncWithDesc", ["device", 0, "stream", "out"], RT),
    ("aclrtCmoAsyncWithDesc", ["device", 0, "dead", NULL], HANDLE),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_rule(scene: MemoryScene, row: tuple[str, list[Any], int]) -> None:
    function, arguments, code = row
    assert code_of(scene, function, arguments) == code, api.aclGetRecentErrMsg()


NEED_CONTEXT: list[tuple[str, list[Any]]] = [
    ("aclrtMalloc", ["out", 64, 0]),
    ("aclrtMallocAlign32", ["out", 64, 0]),
    ("aclrtMallocCached", ["out", 64, 0]),
    ("aclrtMallocWithCfg", ["out", 64, 0, NULL]),
    ("aclrtMallocForTaskScheduler", ["out", 64, 0, NULL]),
    ("aclrtMallocHost", ["out", 64]),
    ("aclrtMallocHostWithCfg", ["out", 64, NULL]),
    ("aclrtFreeWithDevSync", ["device"]),
    ("aclrtFreeHostWithDevSync", ["pinned"]),
    ("aclrtHostRegister", ["page", 4096, 0, "out"]),
    ("aclrtHostRegisterV2", ["page", 4096, 2]),
    ("aclrtHostUnregister", ["page"]),
    ("aclrtHostGetDevicePointer", ["page", "out", 0]),
    ("aclrtGetMemInfo", [1, "out", "host"]),
    ("aclrtMemcpy", ["device", 64, "host", 64, 1]),
    ("aclrtMemcpyAsync", ["device", 64, "pinned", 64, 1, NULL]),
    ("aclrtMemcpyAsyncWithCondition", ["device", 64, "pinned", 64, 1, NULL]),
    ("aclrtMemcpyAsyncWithOffset", ["device", 64, 0, "device", 16, 0, 6, NULL]),
    ("aclrtMemcpy2d", ["device", 64, "host", 64, 32, 4, 1]),
    ("aclrtMemcpy2dAsync", ["device", 64, "pinned", 64, 32, 4, 1, NULL]),
    ("aclrtMemset", ["device", 64, 0, 64]),
    ("aclrtMemsetAsync", ["device", 64, 0, 64, NULL]),
    ("aclrtMemsetD32", ["device", 64, 0, 4]),
    ("aclrtMemsetD32Async", ["device", 64, 0, 4, NULL]),
    ("aclrtReduceAsync", ["device", "other", 16, 10, 0, NULL, NULL]),
    ("aclrtCmoAsync", ["device", 64, 0, NULL]),
    ("aclrtMemPoolCreate", ["out", "pool_props"]),
    ("aclrtMemAllocManaged", ["out", 64, 1]),
    ("aclrtMemImportFromShareableHandle", [1, 0, "out"]),
    ("aclrtMemImportFromShareableHandleV2", ["garbage", 1, 0, "out"]),
    ("aclrtIpcMemGetExportKey", ["device", 64, "out", 65, 0]),
    ("aclrtIpcMemImportByKey", ["out", b"key", 0]),
]


@pytest.mark.parametrize("row", NEED_CONTEXT, ids=lambda row: row[0])
def test_without_a_context(scene: MemoryScene, row: tuple[str, list[Any]]) -> None:
    assert code_in_new_thread(scene, *row) == NO_CONTEXT


# Calls that work without a context, as on the runtime.
NO_CONTEXT_NEEDED: list[tuple[str, list[Any]]] = [
    ("aclrtMemcpy", ["device", 64, "device", 64, 3]),  # to itself
    ("aclrtReserveMemAddress", ["out", 64, 0, NULL, 0]),
    ("aclrtMallocPhysical", ["out", 2 << 20, "prop", 0]),
    ("aclrtMemGetAllocationGranularity", ["prop", 0, "out"]),
    ("aclrtPointerGetAttributes", ["device", "out"]),
]


@pytest.mark.parametrize("row", NO_CONTEXT_NEEDED, ids=lambda row: row[0])
def test_needs_no_context(scene: MemoryScene, row: tuple[str, list[Any]]) -> None:
    function, arguments = row
    assert code_in_new_thread(scene, function, arguments) == 0
    made = ctypes.c_uint64.from_address(scene.out).value
    if function == "aclrtReserveMemAddress":
        assert api.aclrtReleaseMemAddress(made) == 0
    if function == "aclrtMallocPhysical":
        assert api.aclrtFreePhysical(made) == 0


@pytest.mark.parametrize("function", [
    "aclrtMemcpyAsync", "aclrtMemsetAsync", "aclrtMemsetD32Async", "aclrtCmoAsync", "aclrtReduceAsync",
])
def test_stream_of_another_context(scene: MemoryScene, function: str) -> None:
    rows: dict[str, list[Any]] = {
        "aclrtMemcpyAsync": [scene.device, 64, scene.pinned, 64, 1, scene.stream],
        "aclrtMemsetAsync": [scene.device, 64, 0, 64, scene.stream],
        "aclrtMemsetD32Async": [scene.device, 64, 0, 4, scene.stream],
        "aclrtCmoAsync": [scene.device, 64, 0, scene.stream],
        "aclrtReduceAsync": [scene.device, scene.other, 16, 10, 0, scene.stream, None],
    }
    context = ctypes.c_void_p()
    assert api.aclrtCreateContext(ctypes.byref(context), 0) == 0
    code = getattr(api, function)(*rows[function])
    assert api.aclrtDestroyContext(context) == 0
    assert api.aclrtSetDevice(0) == 0
    assert code == OTHER_CONTEXT


def test_messages_name_the_argument_and_the_numbers(scene: MemoryScene) -> None:
    assert api.aclrtMemcpy(scene.other + 65536, 65536, scene.host, 65536, 1) == RT
    text = api.aclGetRecentErrMsg().decode()
    assert f"dst = {scene.other + 65536:#x}: 65536 bytes expected there" in text
    assert api.aclrtMallocAlign32(scene.out, 1 << 50, 0) == NO_MEMORY
    assert f"{1 << 50} bytes wanted, device 0 has" in api.aclGetRecentErrMsg().decode()
