"""Argument rules of the small groups of functions: each row is a call, its arguments, and the status it returns.

The status codes are those that the runtime's own code returned (shared/probes) or that its sources state.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import pytest
from support.calls import api, out
from support.rules import code_in_new_thread, code_of

P, RT, DEVICE, HANDLE, UNSUPPORTED = 100000, 107000, 107001, 107017, 207000
NO_CONTEXT = 107002
NULL = None
HUGE = 1 << 40


class Scene:
    """The objects and buffers that the arguments of the rows name; made anew for each row."""

    def __init__(self) -> None:
        self.buffer = (ctypes.c_ubyte * 8192)()
        self.out = ctypes.addressof(self.buffer)
        self.pid = os.getpid()
        self.garbage = ctypes.addressof((ctypes.c_ubyte * 4096).from_buffer(self.buffer, 4096))
        stream = out()
        assert api.aclrtCreateStream(ctypes.byref(stream)) == 0
        self.stream = stream.value
        dead = out()
        assert api.aclrtCreateStream(ctypes.byref(dead)) == 0
        assert api.aclrtDestroyStream(dead) == 0
        self.dead = dead.value
        self.desc = api.aclrtAllocatorCreateDesc()
        device = out()
        assert api.aclrtMalloc(ctypes.byref(device), 4096, 0) == 0
        self.device = device.value
        mbuf = out()
        assert api.aclrtAllocBuf(ctypes.byref(mbuf), 64) == 0
        self.mbuf = mbuf.value
        self.data = api.aclCreateDataBuffer(self.out, 8)

    def close(self) -> None:
        assert api.aclrtSynchronizeStream(self.stream) == 0
        assert api.aclrtDestroyStream(self.stream) == 0
        assert api.aclrtAllocatorDestroyDesc(self.desc) == 0
        assert api.aclrtFree(self.device) == 0
        api.aclrtFreeBuf(self.mbuf)
        api.aclDestroyDataBuffer(self.data)


@pytest.fixture
def scene() -> Iterator[Scene]:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    made = Scene()
    yield made
    made.close()


# A string is the name of a field of the scene; anything else is passed as it is.
ROWS: list[tuple[str, list[Any], int]] = [
    # The next rows test the registration of allocators.
    ("aclrtAllocatorDestroyDesc", [NULL], P),
    ("aclrtAllocatorDestroyDesc", ["garbage"], P),
    ("aclrtAllocatorSetObjToDesc", [NULL, "out"], P),
    ("aclrtAllocatorSetObjToDesc", ["desc", NULL], P),
    ("aclrtAllocatorSetObjToDesc", ["desc", "out"], 0),
    ("aclrtAllocatorSetAllocFuncToDesc", [NULL, "out"], P),
    ("aclrtAllocatorSetAllocFuncToDesc", ["desc", NULL], P),
    ("aclrtAllocatorSetFreeFuncToDesc", [NULL, "out"], P),
    ("aclrtAllocatorSetFreeFuncToDesc", ["desc", NULL], P),
    ("aclrtAllocatorSetAllocAdviseFuncToDesc", [NULL, "out"], P),
    ("aclrtAllocatorSetAllocAdviseFuncToDesc", ["desc", NULL], P),
    ("aclrtAllocatorSetGetAddrFromBlockFuncToDesc", [NULL, "out"], P),
    ("aclrtAllocatorSetGetAddrFromBlockFuncToDesc", ["desc", NULL], P),
    ("aclrtAllocatorRegister", [NULL, "desc"], P),
    ("aclrtAllocatorRegister", ["stream", NULL], P),
    ("aclrtAllocatorRegister", ["stream", "garbage"], P),
    ("aclrtAllocatorRegister", ["stream", "desc"], P),  # no object was set
    ("aclrtAllocatorUnregister", [NULL], P),
    ("aclrtAllocatorUnregister", ["garbage"], 0),
    ("aclrtAllocatorGetByStream", [NULL, "out", NULL, NULL, NULL, NULL, NULL], P),
    ("aclrtAllocatorGetByStream", ["stream", NULL, NULL, NULL, NULL, NULL, NULL], P),
    ("aclrtAllocatorGetByStream", ["stream", "out", NULL, NULL, NULL, NULL, NULL], P),  # no allocator is registered
    # The next rows test queries of versions and of what the chip has.
    ("aclrtGetVersion", [NULL, "out", "out"], P),
    ("aclrtGetVersion", ["out", NULL, "out"], P),
    ("aclrtGetVersion", ["out", "out", NULL], P),
    ("aclsysGetCANNVersion", [0, NULL], P),
    ("aclsysGetCANNVersion", [8, "out"], P),
    ("aclsysGetCANNVersion", [-1, "out"], P),
    ("aclsysGetCANNVersion", [7, "out"], 0),
    ("aclsysGetVersionStr", [NULL, "out"], P),
    ("aclsysGetVersionStr", [b"runtime", NULL], P),
    ("aclsysGetVersionStr", [b"no-such-package", "out"], 100003),
    ("aclsysGetVersionNum", [NULL, "out"], P),
    ("aclsysGetVersionNum", [b"runtime", NULL], P),
    ("aclsysGetVersionNum", [b"opp-kernel", "out"], 0),
    ("aclrtCheckArchCompatibility", [NULL, "out"], RT),
    ("aclrtCheckArchCompatibility", [b"Ascend910B1", NULL], RT),
    ("aclrtCheckArchCompatibility", [b"Toaster", "out"], RT),
    ("aclGetCannAttributeList", [NULL, "out"], P),
    ("aclGetCannAttributeList", ["out", NULL], P),
    ("aclGetCannAttribute", [0, NULL], P),
    ("aclGetCannAttribute", [-1, "out"], P),
    ("aclGetCannAttribute", [3, "out"], P),
    ("aclGetDeviceCapability", [0, 0, NULL], P),
    ("aclGetDeviceCapability", [99, 0, "out"], P),
    ("aclGetDeviceCapability", [0, 3, "out"], P),
    ("aclrtGetDeviceInfo", [0, 101, NULL], P),
    ("aclrtGetDeviceInfo", [2, 101, "out"], RT),
    ("aclrtGetDeviceInfo", [0xFFFFFFFF, 101, "out"], RT),
    ("aclrtGetDeviceInfo", [0, 9999, "out"], RT),
    ("aclrtGetDeviceCapability", [0, 1, NULL], P),
    ("aclrtGetDeviceCapability", [-1, 1, "out"], DEVICE),
    ("aclrtGetDeviceCapability", [99, 1, "out"], DEVICE),
    ("aclrtGetDeviceCapability", [0, 9999, "out"], RT),
    ("aclrtHostMemMapCapabilities", [0, 0, NULL], P),
    ("aclrtHostMemMapCapabilities", [99, 0, "out"], DEVICE),
    ("aclrtHostMemMapCapabilities", [0, 10, "out"], RT),
    ("aclrtDeviceGetHostAtomicCapabilities", [NULL, "out", 1, 0], RT),
    ("aclrtDeviceGetHostAtomicCapabilities", ["out", NULL, 1, 0], RT),
    ("aclrtDeviceGetHostAtomicCapabilities", ["out", "garbage", 0, 0], RT),
    ("aclrtDeviceGetHostAtomicCapabilities", ["out", "garbage", 1, 99], DEVICE),
    ("aclrtDeviceGetP2PAtomicCapabilities", [NULL, "out", 1, 0, 1], RT),
    ("aclrtDeviceGetP2PAtomicCapabilities", ["out", "garbage", 1, 0, 99], DEVICE),
    # The next rows test system parameters and the timeouts of operators.
    ("aclrtSetSysParamOpt", [-1, 0], P),
    ("aclrtSetSysParamOpt", [4, 0], P),
    ("aclrtSetSysParamOpt", [1, 2], RT),
    ("aclrtSetSysParamOpt", [0, -1], RT),
    ("aclrtGetSysParamOpt", [0, NULL], P),
    ("aclrtGetSysParamOpt", [4, "out"], P),
    ("aclrtCtxSetSysParamOpt", [3, 0], P),
    ("aclrtCtxSetSysParamOpt", [0, 4], RT),
    ("aclrtCtxGetSysParamOpt", [0, NULL], P),
    ("aclrtCtxGetSysParamOpt", [3, "out"], P),
    ("aclrtCtxGetSysParamOpt", [2, "out"], 107021),
    ("aclrtSetOpExecuteTimeOutV2", [1, NULL], P),
    ("aclrtGetOpExecuteTimeout", [NULL], P),
    ("aclrtGetOpTimeOutInterval", [NULL], P),
    # The next rows test limits of devices, streams and threads.
    ("aclrtGetDeviceResLimit", [0, 0, NULL], P),
    ("aclrtGetDeviceResLimit", [-1, 0, "out"], DEVICE),
    ("aclrtGetDeviceResLimit", [99, 0, "out"], DEVICE),
    ("aclrtGetDeviceResLimit", [0, 2, "out"], RT),
    ("aclrtGetDeviceResLimit", [0, -1, "out"], RT),
    ("aclrtSetDeviceResLimit", [-1, 0, 1], DEVICE),
    ("aclrtSetDeviceResLimit", [0, 2, 1], RT),
    ("aclrtSetDeviceResLimit", [0, 0, 10000], RT),
    ("aclrtResetDeviceResLimit", [99], DEVICE),
    ("aclrtResetDeviceResLimit", [-1], DEVICE),
    ("aclrtGetStreamResLimit", ["stream", 0, NULL], P),
    ("aclrtGetStreamResLimit", ["stream", 2, "out"], RT),
    ("aclrtGetStreamResLimit", ["dead", 0, "out"], HANDLE),
    ("aclrtGetStreamResLimit", [NULL, 0, "out"], 0),
    ("aclrtSetStreamResLimit", ["dead", 0, 1], HANDLE),
    ("aclrtSetStreamResLimit", ["stream", 5, 1], RT),
    ("aclrtSetStreamResLimit", ["stream", 0, 10000], RT),
    ("aclrtResetStreamResLimit", ["garbage"], HANDLE),
    ("aclrtUseStreamResInCurrentThread", ["dead"], HANDLE),
    ("aclrtUnuseStreamResInCurrentThread", ["garbage"], HANDLE),
    ("aclrtGetResInCurrentThread", [0, NULL], P),
    ("aclrtGetResInCurrentThread", [2, "out"], RT),
    ("aclrtDeviceGetLimit", [0, NULL], P),
    ("aclrtDeviceGetLimit", [-1, "out"], P),
    ("aclrtDeviceGetLimit", [5, "out"], P),
    ("aclrtDeviceGetLimit", [0, "out"], UNSUPPORTED),
    ("aclrtDeviceGetLimit", [2, "out"], 0),
    ("aclrtDeviceSetLimit", [5, 1], P),
    ("aclrtDeviceSetLimit", [2, HUGE], P),
    ("aclrtDeviceSetLimit", [4, 1024], UNSUPPORTED),
    ("aclrtDeviceL2CacheFlush", ["out"], P),
    # The next rows test the overflow mode and status.
    ("aclrtSetDeviceSatMode", [2], RT),
    ("aclrtSetDeviceSatMode", [99], RT),
    ("aclrtGetDeviceSatMode", [NULL], P),
    ("aclrtSetStreamOverflowSwitch", ["stream", 2], P),
    ("aclrtSetStreamOverflowSwitch", ["dead", 1], HANDLE),
    ("aclrtGetStreamOverflowSwitch", ["stream", NULL], P),
    ("aclrtGetStreamOverflowSwitch", ["garbage", "out"], HANDLE),
    ("aclrtGetOverflowStatus", [NULL, 64, "stream"], P),
    ("aclrtGetOverflowStatus", ["device", 63, "stream"], RT),
    ("aclrtGetOverflowStatus", ["device", 64, "dead"], HANDLE),
    ("aclrtGetOverflowStatus", ["device", 64, "stream"], 0),
    ("aclrtResetOverflowStatus", ["dead"], HANDLE),
    ("aclrtResetOverflowStatus", [NULL], 0),
    # The next rows test access from one device to another.
    ("aclrtDeviceCanAccessPeer", ["out", 0, 0], P),
    ("aclrtDeviceCanAccessPeer", [NULL, 99, 99], P),
    ("aclrtDeviceCanAccessPeer", [NULL, 0, 1], RT),
    ("aclrtDeviceCanAccessPeer", ["out", 0, 99], RT),
    ("aclrtDeviceCanAccessPeer", ["out", 99, 0], RT),
    ("aclrtDeviceEnablePeerAccess", [1, 1], 200006),
    ("aclrtDeviceEnablePeerAccess", [0, 1], 200006),
    ("aclrtDeviceEnablePeerAccess", [0, 0], P),
    ("aclrtDeviceEnablePeerAccess", [99, 0], RT),
    ("aclrtDeviceDisablePeerAccess", [0], P),
    ("aclrtDeviceDisablePeerAccess", [99], RT),
    ("aclrtDevicePeerAccessStatus", [0, 1, NULL], P),
    ("aclrtDevicePeerAccessStatus", [0, 99, "out"], RT),
    ("aclrtGetDevicesTopo", [0, 1, NULL], P),
    # The next rows test identity and state of devices.
    ("aclrtGetLogicDevIdByUserDevId", [0, NULL], P),
    ("aclrtGetLogicDevIdByUserDevId", [-1, "out"], RT),
    ("aclrtGetLogicDevIdByUserDevId", [99, "out"], DEVICE),
    ("aclrtGetUserDevIdByLogicDevId", [0, NULL], P),
    ("aclrtGetUserDevIdByLogicDevId", [-1, "out"], RT),
    ("aclrtGetUserDevIdByLogicDevId", [2, "out"], DEVICE),
    ("aclrtGetLogicDevIdByPhyDevId", [0, NULL], P),
    ("aclrtGetLogicDevIdByPhyDevId", [-1, "out"], RT),
    ("aclrtGetPhyDevIdByLogicDevId", [0, NULL], P),
    ("aclrtGetPhyDevIdByLogicDevId", [-1, "out"], RT),
    ("aclrtGetUserDevIdByPhyDevId", [0, NULL], P),
    ("aclrtGetPhyDevIdByUserDevId", [0, NULL], P),
    ("aclrtDeviceGetUuid", [0, NULL], P),
    ("aclrtDeviceGetPCIBusId", [0, NULL, 13], P),
    ("aclrtDeviceGetPCIBusId", [0, "out", 12], RT),
    ("aclrtDeviceGetPCIBusId", [99, "out", 13], DEVICE),
    ("aclrtDeviceGetByPCIBusId", [NULL, "out"], P),
    ("aclrtDeviceGetByPCIBusId", [b"0000:00:00.0", "out"], RT),
    ("aclrtDeviceGetByPCIBusId", [b"nonsense", "out"], RT),
    ("aclrtDeviceGetBareTgid", [NULL], P),
    ("aclrtSetTsDevice", [2], P),
    ("aclrtSetTsDevice", [-1], P),
    ("aclrtSetTsDevice", [1], 0),
    ("aclrtGetDeviceUtilizationRate", [0, NULL], P),
    ("aclrtQueryDeviceStatus", [0, NULL], P),
    ("aclrtQueryDeviceStatus", [99, "out"], DEVICE),
    # The next rows test computing-power groups.
    ("aclrtGetGroupCount", [NULL], P),
    ("aclrtSetGroup", [1], RT),
    ("aclrtSetGroup", [-1], RT),
    ("aclrtDestroyGroupInfo", [NULL], P),
    ("aclrtDestroyGroupInfo", ["garbage"], P),
    ("aclrtGetAllGroupInfo", [NULL], P),
    ("aclrtGetGroupInfoDetail", [NULL, 0, 0, "out", 4, "out"], P),
    ("aclrtGetGroupInfoDetail", ["garbage", 0, 0, "out", 4, "out"], P),
    # The next rows test shared buffers (aclrtMbuf).
    ("aclrtAllocBuf", [NULL, 64], P),
    ("aclrtAllocBuf", ["out", 0], P),
    ("aclrtFreeBuf", [NULL], P),
    ("aclrtFreeBuf", ["garbage"], P),
    ("aclrtGetBufData", [NULL, "out", "out"], P),
    ("aclrtGetBufData", ["mbuf", NULL, "out"], P),
    ("aclrtGetBufData", ["mbuf", "out", NULL], P),
    ("aclrtSetBufDataLen", [NULL, 1], P),
    ("aclrtSetBufDataLen", ["mbuf", 65], P),
    ("aclrtSetBufDataLen", ["mbuf", 64], 0),
    ("aclrtGetBufDataLen", [NULL, "out"], P),
    ("aclrtGetBufDataLen", ["mbuf", NULL], P),
    ("aclrtCopyBufRef", [NULL, "out"], P),
    ("aclrtCopyBufRef", ["mbuf", NULL], P),
    ("aclrtAppendBufChain", [NULL, NULL], P),
    ("aclrtAppendBufChain", ["mbuf", "mbuf"], P),
    ("aclrtGetBufChainNum", [NULL, NULL], P),
    ("aclrtGetBufFromChain", [NULL, 0, "out"], P),
    ("aclrtGetBufFromChain", ["mbuf", 1, "out"], P),
    ("aclrtGetBufUserData", [NULL, "out", 1, 0], P),
    ("aclrtGetBufUserData", ["mbuf", "out", 97, 0], P),
    ("aclrtSetBufUserData", [NULL, "out", 1, 0], P),
    ("aclrtSetBufUserData", ["mbuf", "out", 90, 10], P),
    ("aclrtSetBufUserData", ["mbuf", "out", 86, 10], 0),
    # The next rows test health, hints, random numbers and snapshots.
    ("aclrtGetErrorVerbose", [0, NULL], P),
    ("aclrtGetErrorVerbose", [99, "out"], DEVICE),
    ("aclrtRepairError", [0, NULL], P),
    ("aclrtGetMemUceInfo", [0, NULL, 1, "out"], P),
    ("aclrtGetMemUceInfo", [0, "out", 0, "out"], 0),
    ("aclrtGetMemUceInfo", [0, "out", 1, NULL], P),
    ("aclrtMemUceRepair", [0, NULL, 1], P),
    ("aclrtMemUceRepair", [0, "out", 0], 0),
    ("aclrtMemUceRepair", [0, "out", 21], P),
    ("aclrtCacheLastTaskOpInfo", [NULL, 8], P),
    ("aclrtCacheLastTaskOpInfo", ["out", 0], P),
    ("aclrtCacheLastTaskExtendInfo", [NULL, 8], RT),
    ("aclrtProfTrace", [NULL, 8, "stream"], P),
    ("aclrtProfTrace", ["out", 8, "dead"], HANDLE),
    ("aclrtRandomNumAsync", [NULL, "stream", NULL], P),
    ("aclrtRandomNumAsync", ["out", "stream", "out"], P),
    ("aclrtRandomNumAsync", ["out", "dead", NULL], HANDLE),
    ("aclrtTaskUpdateAsync", ["stream", 0, NULL, "stream"], P),
    ("aclrtTaskUpdateAsync", ["stream", 0, "out", "stream"], UNSUPPORTED),
    ("aclrtSnapShotProcessLock", [1, NULL], P),
    ("aclrtSnapShotProcessLock", ["pid", "out"], P),
    ("aclrtSnapShotProcessUnlock", [1, NULL], P),
    ("aclrtSnapShotProcessBackup", [1, NULL], P),
    ("aclrtSnapShotProcessBackup", ["pid", "out"], P),
    ("aclrtSnapShotProcessRestore", [1, NULL], P),
    ("aclrtSnapShotCallbackRegister", [6, "out", NULL], RT),
    ("aclrtSnapShotCallbackRegister", [0, NULL, NULL], RT),
    ("aclrtSnapShotCallbackUnregister", [0, "out"], RT),
    # The next rows test data buffers (aclDataBuffer).
    ("aclDestroyDataBuffer", [NULL], P),
    ("aclDestroyDataBuffer", ["garbage"], P),
    ("aclUpdateDataBuffer", [NULL, "out", 8], P),
    ("aclUpdateDataBuffer", ["data", NULL, 0], 0),
    ("aclGetDataBufferSize", [NULL], 0),
    ("aclGetDataBufferSizeV2", ["garbage"], 0),
    # The next rows test dumps.
    ("aclmdlSetDump", [NULL], 100045),
    ("aclmdlSetDump", [b"/nonexistent"], 100045),
    ("aclmdlFinalizeDump", [], 100045),
    # The next rows test events that processes share.
    ("aclrtIpcGetEventHandle", [NULL, "out"], P),
    ("aclrtIpcGetEventHandle", ["out", NULL], P),
    ("aclrtIpcGetEventHandle", ["garbage", "out"], HANDLE),
]


def _name(row: tuple[str, list[Any], int]) -> str:
    function, arguments, code = row
    return f"{function}({','.join(str(a) for a in arguments)})={code}"


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_call_with_wrong_arguments_returns_the_documented_code(row: tuple[str, list[Any], int], scene: Scene) -> None:
    function, arguments, expected = row
    assert code_of(scene, function, arguments) == expected


# Calls that need a current context.
NEED_CONTEXT: list[tuple[str, list[Any]]] = [
    ("aclrtCtxSetSysParamOpt", [0, 1]),
    ("aclrtCtxGetSysParamOpt", [0, "out"]),
    ("aclrtGetOpExecuteTimeout", ["out"]),
    ("aclrtGetOpTimeOutInterval", ["out"]),
    ("aclrtGetResInCurrentThread", [0, "out"]),
    ("aclrtGetStreamResLimit", [NULL, 0, "out"]),
    ("aclrtDeviceGetLimit", [2, "out"]),
    ("aclrtDeviceSetLimit", [2, 1024]),
    ("aclrtDeviceL2CacheFlush", [NULL]),
    ("aclrtGetDeviceSatMode", ["out"]),
    ("aclrtResetOverflowStatus", [NULL]),
    ("aclrtDeviceEnablePeerAccess", [1, 0]),
    ("aclrtDeviceDisablePeerAccess", [1]),
    ("aclrtSetGroup", [0]),
    ("aclrtGetGroupCount", ["out"]),
    ("aclrtRandomNumAsync", ["out", NULL, NULL]),
]


@pytest.mark.parametrize("row", NEED_CONTEXT, ids=lambda row: row[0])
def test_call_without_a_context_returns_107002(row: tuple[str, list[Any]], scene: Scene) -> None:
    assert code_in_new_thread(scene, *row) == NO_CONTEXT


@pytest.mark.parametrize("row", [
    ("aclrtSetOpExecuteTimeOut", [0]), ("aclrtSetOpExecuteTimeOutWithMs", [0]),
    ("aclrtSetOpExecuteTimeOutV2", [0, "out"]), ("aclrtSetOpWaitTimeout", [0]),
], ids=lambda row: row[0])
def test_time_outs_are_set_without_a_context(row: tuple[str, list[Any]], scene: Scene) -> None:
    assert code_in_new_thread(scene, *row) == 0


def test_refused_calls_leave_a_message(scene: Scene) -> None:
    assert api.aclrtSetDeviceResLimit(0, 0, 10000) == RT
    text = api.aclGetRecentErrMsg().decode()
    assert "value is 10000, expected at most the 24 cores of Ascend910B1; called with " in text.splitlines()[0]
