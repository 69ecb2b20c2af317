"""acltdt*: queues, routes and channels: argument rules as rows, and use by several threads."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.calls import api, out

P, RT, EMPTY, FULL, FAILURE = 100000, 107000, 207013, 207014, 500001
UNSUPPORTED = 207000
NAME, DEPTH = 0, 1
TENSOR, END, UNDEFINED, FLOAT = 0, 1, -1, 0
FOREVER = -1

_numbers = itertools.count()


class Scene:
    """The objects and buffers that the arguments of the rows name; made anew for each row."""

    def __init__(self) -> None:
        self.buffer = (ctypes.c_ubyte * 4096)()
        self.out = ctypes.addressof(self.buffer)
        self.attr = api.acltdtCreateQueueAttr()
        self.queue = new_queue()
        self.route = api.acltdtCreateQueueRoute(self.queue, self.queue + 1)
        self.routes = api.acltdtCreateQueueRouteList()
        self.query = api.acltdtCreateQueueRouteQueryInfo()
        mbuf = out()
        assert api.acltdtAllocBuf(64, 0, ctypes.byref(mbuf)) == 0
        self.mbuf = mbuf.value
        self.channel = api.acltdtCreateChannelWithCapacity(0, f"channel {next(_numbers)}".encode(), 2)
        dims = (ctypes.c_int64 * 2)(2, 3)
        self.item = api.acltdtCreateDataItem(TENSOR, dims, 2, FLOAT, self.out, 24)
        self.filled = api.acltdtCreateDataset()
        self.empty = api.acltdtCreateDataset()
        assert api.acltdtAddDataItem(self.filled, self.item) == 0


@pytest.fixture
def scene() -> Iterator[Scene]:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    made = Scene()
    yield made
    for undo, handle in [("QueueAttr", made.attr), ("QueueRoute", made.route), ("QueueRouteList", made.routes),
                         ("QueueRouteQueryInfo", made.query), ("Channel", made.channel), ("Dataset", made.filled),
                         ("Dataset", made.empty), ("DataItem", made.item)]:
        assert getattr(api, f"acltdtDestroy{undo}")(handle) == 0, undo
    assert api.acltdtDestroyQueue(made.queue) == 0
    assert api.acltdtFreeBuf(made.mbuf) == 0


def new_queue(depth: int = 4, name: str = "") -> int:
    attr = api.acltdtCreateQueueAttr()
    text = ctypes.c_char_p(name.encode())
    assert api.acltdtSetQueueAttr(attr, NAME, 8, ctypes.byref(text)) == 0
    assert api.acltdtSetQueueAttr(attr, DEPTH, 4, ctypes.byref(ctypes.c_uint32(depth))) == 0
    queue = ctypes.c_uint32()
    assert api.acltdtCreateQueue(attr, ctypes.byref(queue)) == 0
    assert api.acltdtDestroyQueueAttr(attr) == 0
    return queue.value


ROWS: list[tuple[str, str, int]] = [
    ("acltdtDestroyQueueAttr", "None", P),
    ("acltdtDestroyQueueAttr", "s.route", P),
    ("acltdtSetQueueAttr", "None, DEPTH, 4, s.out", P),
    ("acltdtSetQueueAttr", "s.attr, DEPTH, 4, None", P),
    ("acltdtSetQueueAttr", "s.attr, 2, 4, s.out", P),
    ("acltdtSetQueueAttr", "s.attr, DEPTH, 8, s.out", P),
    ("acltdtSetQueueAttr", "s.attr, DEPTH, 4, s.out", 0),
    ("acltdtSetQueueAttr", "s.attr, NAME, 8, s.out", P),  # the buffer holds a null pointer to the name
    ("acltdtSetQueueAttr", "s.attr, NAME, 4, s.out", P),
    ("acltdtSetQueueAttr", "s.attr, NAME, 11, b'queue name'", 0),
    ("acltdtSetQueueAttr", "s.attr, NAME, 10, b'queue name'", P),
    ("acltdtGetQueueAttr", "None, DEPTH, 4, s.out, s.out", P),
    ("acltdtGetQueueAttr", "s.attr, DEPTH, 4, None, s.out", P),
    ("acltdtGetQueueAttr", "s.attr, DEPTH, 4, s.out, None", P),
    ("acltdtGetQueueAttr", "s.attr, DEPTH, 3, s.out, s.out", P),
    ("acltdtGetQueueAttr", "s.attr, NAME, 7, s.out, s.out", P),
    ("acltdtGetQueueAttr", "s.attr, 2, 8, s.out, s.out", P),
    ("acltdtGetQueueAttr", "s.attr, DEPTH, 4, s.out, s.out + 8", 0),
    ("acltdtCreateQueue", "s.attr, None", P),
    ("acltdtCreateQueue", "s.route, s.out", P),
    ("acltdtDestroyQueue", "0", RT),
    ("acltdtDestroyQueue", "1 << 30", RT),
    ("acltdtEnqueue", "s.queue, None, 0", P),
    ("acltdtEnqueue", "s.queue, s.out, 0", P),
    ("acltdtEnqueue", "1 << 30, s.mbuf, 0", RT),
    ("acltdtDequeue", "s.queue, None, 0", P),
    ("acltdtDequeue", "s.queue, s.out, 0", FAILURE),
    ("acltdtDequeue", "1 << 30, s.out, 0", RT),
    ("acltdtEnqueueData", "s.queue, None, 4, None, 0, 0, 0", P),
    ("acltdtEnqueueData", "s.queue, s.out, 0, None, 0, 0, 0", P),
    ("acltdtEnqueueData", "s.queue, s.out, 4, s.out, 97, 0, 0", RT),
    ("acltdtEnqueueData", "s.queue, s.out, 4, None, 4, 0, 0", RT),
    ("acltdtEnqueueData", "s.queue, s.out, 4, s.out, 96, 0, 0", 0),
    ("acltdtEnqueueData", "1 << 30, s.out, 4, None, 0, 0, 0", RT),
    ("acltdtDequeueData", "s.queue, None, 4, s.out, None, 0, 0", P),
    ("acltdtDequeueData", "s.queue, s.out, 4, None, None, 0, 0", P),
    ("acltdtDequeueData", "s.queue, s.out, 0, s.out, None, 0, 0", P),
    ("acltdtDequeueData", "s.queue, s.out, 4, s.out + 8, None, 0, 0", EMPTY),
    ("acltdtDequeueData", "s.queue, s.out, 4, s.out + 8, None, 0, 1", EMPTY),
    ("acltdtDequeueData", "1 << 30, s.out, 4, s.out + 8, None, 0, 0", RT),
    ("acltdtGrantQueue", "s.queue, os.getpid(), 8, 0", RT),
    ("acltdtGrantQueue", "s.queue, os.getpid(), 0, 0", RT),
    ("acltdtGrantQueue", "s.queue, os.getpid(), 7, 0", 0),
    ("acltdtGrantQueue", "1 << 30, os.getpid(), 7, 0", RT),
    ("acltdtGrantQueue", "s.queue, 1, 7, 0", UNSUPPORTED),
    ("acltdtAttachQueue", "s.queue, 0, None", P),
    ("acltdtAttachQueue", "s.queue, 0, s.out", 0),
    ("acltdtAttachQueue", "1 << 30, 0, s.out", RT),
    ("acltdtDestroyQueueRoute", "None", P),
    ("acltdtGetQueueRouteParam", "None, 0, 4, s.out, s.out", P),
    ("acltdtGetQueueRouteParam", "s.route, 0, 4, None, s.out", P),
    ("acltdtGetQueueRouteParam", "s.route, 0, 4, s.out, None", P),
    ("acltdtGetQueueRouteParam", "s.route, 3, 4, s.out, s.out", P),
    ("acltdtGetQueueRouteParam", "s.route, 2, 3, s.out, s.out", P),
    ("acltdtGetQueueRouteParam", "s.route, 1, 4, s.out, s.out + 8", 0),
    ("acltdtAddQueueRoute", "None, s.route", P),
    ("acltdtAddQueueRoute", "s.routes, None", P),
    ("acltdtAddQueueRoute", "s.routes, s.route", 0),
    ("acltdtGetQueueRoute", "s.routes, 0, s.route", P),
    ("acltdtGetQueueRoute", "None, 0, s.route", P),
    ("acltdtBindQueueRoutes", "None", P),
    ("acltdtBindQueueRoutes", "s.routes", 0),  # the list is empty
    ("acltdtUnbindQueueRoutes", "None", P),
    ("acltdtQueryQueueRoutes", "s.query, None", P),
    ("acltdtQueryQueueRoutes", "None, s.routes", P),
    ("acltdtQueryQueueRoutes", "s.query, s.routes", P),  # the query has no mode
    ("acltdtSetQueueRouteQueryInfo", "None, 0, 4, s.out", P),
    ("acltdtSetQueueRouteQueryInfo", "s.query, 0, 4, None", P),
    ("acltdtSetQueueRouteQueryInfo", "s.query, 3, 4, s.out", P),
    ("acltdtSetQueueRouteQueryInfo", "s.query, 1, 8, s.out", P),
    ("acltdtAllocBuf", "64, 2, s.out", P),
    ("acltdtAllocBuf", "64, 0, None", P),
    ("acltdtAllocBuf", "0, 1, s.out", P),
    ("acltdtFreeBuf", "None", P),
    ("acltdtGetBufData", "None, s.out, s.out", P),
    ("acltdtSetBufDataLen", "s.mbuf, 65", P),
    ("acltdtSetBufDataLen", "s.mbuf, 64", 0),
    ("acltdtGetBufDataLen", "s.mbuf, None", P),
    ("acltdtSetBufUserData", "s.mbuf, s.out, 97, 0", P),
    ("acltdtGetBufUserData", "s.mbuf, s.out, 90, 7", P),
    ("acltdtCopyBufRef", "s.mbuf, None", P),
    ("acltdtAppendBufChain", "s.mbuf, s.mbuf", P),
    ("acltdtGetBufChainNum", "s.mbuf, s.out", 0),
    ("acltdtGetBufFromChain", "s.mbuf, 1, s.out", P),
    ("acltdtDestroyDataItem", "None", P),
    ("acltdtDestroyDataItem", "s.filled", P),
    ("acltdtGetSliceInfoFromItem", "s.item, None, s.out", P),
    ("acltdtGetSliceInfoFromItem", "s.item, s.out, s.out + 8", 0),
    ("acltdtGetDimsFromItem", "s.item, s.out, 1", P),
    ("acltdtGetDimsFromItem", "s.item, None, 2", P),
    ("acltdtGetDimsFromItem", "s.item, s.out, 0", P),
    ("acltdtGetDimsFromItem", "s.item, s.out, 5", 0),
    ("acltdtAddDataItem", "None, s.item", P),
    ("acltdtAddDataItem", "s.empty, None", P),
    ("acltdtDestroyDataset", "None", P),
    ("acltdtStopChannel", "None", P),
    ("acltdtStopChannel", "s.channel", 0),
    ("acltdtDestroyChannel", "None", P),
    ("acltdtCleanChannel", "None", P),
    ("acltdtQueryChannelSize", "None, s.out", P),
    ("acltdtQueryChannelSize", "s.channel, None", P),
    ("acltdtSendTensor", "None, s.filled, 0", P),
    ("acltdtSendTensor", "s.channel, None, 0", P),
    ("acltdtSendTensor", "s.channel, s.empty, 0", RT),
    ("acltdtSendTensor", "s.channel, s.filled, 0", 0),
    ("acltdtReceiveTensor", "None, s.empty, 0", P),
    ("acltdtReceiveTensor", "s.channel, None, 0", P),
    ("acltdtReceiveTensor", "s.channel, s.filled, 0", P),
    ("acltdtReceiveTensor", "s.channel, s.empty, 0", EMPTY),
    ("acltdtReceiveTensor", "s.channel, s.empty, 1", EMPTY),
]


@pytest.mark.parametrize(("function", "arguments", "code"), ROWS)
def test_queue_call_with_wrong_arguments_returns_the_documented_code(
    scene: Scene, function: str, arguments: str, code: int
) -> None:
    given: tuple[Any, ...] = eval(f"({arguments},)", globals(), {"s": scene})
    assert getattr(api, function)(*given) == code


@pytest.mark.parametrize("dims", [(None, 1), ((ctypes.c_int64 * 1)(1), 0), ((ctypes.c_int64 * 129)(), 129)])
def test_data_items_with_wrong_dimensions_are_not_created(scene: Scene, dims: tuple[Any, int]) -> None:
    assert api.acltdtCreateDataItem(TENSOR, *dims, FLOAT, None, 0) is None


def test_an_item_without_a_tensor_has_no_shape_and_no_data(scene: Scene) -> None:
    assert api.acltdtCreateDataItem(END, (ctypes.c_int64 * 1)(1), 1, FLOAT, None, 0) is None
    item = api.acltdtCreateDataItem(END, None, 0, FLOAT, scene.out, 8)
    assert api.acltdtGetDataTypeFromItem(item) == -1
    assert api.acltdtGetDataAddrFromItem(item) is None
    assert api.acltdtGetDataSizeFromItem(item) == 0
    assert api.acltdtDestroyDataItem(item) == 0


@pytest.mark.parametrize("capacity", [0, 8193])
def test_channel_with_wrong_arguments_is_not_created(scene: Scene, capacity: int) -> None:
    assert api.acltdtCreateChannelWithCapacity(0, b"odd capacity", capacity) is None
    assert api.acltdtCreateChannelWithCapacity(99, b"odd device", 1) is None
    assert api.acltdtCreateChannelWithCapacity(0, b"n" * 128, 1) is None
    assert api.acltdtCreateChannel(0, None) is None


def test_queue_keeps_a_message_that_does_not_fit_the_receiver(scene: Scene) -> None:
    size = ctypes.c_size_t()
    assert api.acltdtEnqueueData(scene.queue, b"12345678", 8, None, 0, 0, 0) == 0
    assert api.acltdtDequeueData(scene.queue, scene.out, 7, ctypes.byref(size), None, 0, 0) == RT
    assert size.value == 8
    assert api.acltdtDequeueData(scene.queue, scene.out, 8, ctypes.byref(size), None, 0, 0) == 0
    assert bytes(scene.buffer[:8]) == b"12345678"


def test_queue_takes_messages_from_device_memory_until_it_is_full(scene: Scene) -> None:
    device = out()
    assert api.aclrtMalloc(ctypes.byref(device), 64, 0) == 0
    assert api.aclrtMemset(device, 64, 7, 64) == 0
    for _ in range(4):
        assert api.acltdtEnqueueData(scene.queue, device, 64, None, 0, 0, 0) == 0
    assert api.acltdtEnqueueData(scene.queue, device, 64, None, 0, 1, 0) == FULL
    assert api.acltdtEnqueue(scene.queue, scene.mbuf, 1) == FAILURE
    size = ctypes.c_size_t()
    assert api.acltdtDequeueData(scene.queue, scene.out, 64, ctypes.byref(size), None, 0, 0) == 0
    assert bytes(scene.buffer[:64]) == b"\7" * 64
    assert api.aclrtFree(device) == 0


def _bind(*pairs: tuple[int, int]) -> tuple[int, int]:
    """Bind pairs of queues. Return the list of routes and the status of the call."""
    routes = api.acltdtCreateQueueRouteList()
    for source, target in pairs:
        route = api.acltdtCreateQueueRoute(source, target)
        assert api.acltdtAddQueueRoute(routes, route) == 0
        assert api.acltdtDestroyQueueRoute(route) == 0
    return routes, api.acltdtBindQueueRoutes(routes)


def _status(routes: int, index: int) -> int:
    route = api.acltdtCreateQueueRoute(0, 0)
    size, status = ctypes.c_size_t(), ctypes.c_int32()
    assert api.acltdtGetQueueRoute(routes, index, route) == 0
    assert api.acltdtGetQueueRouteParam(route, 2, 4, ctypes.byref(size), ctypes.byref(status)) == 0
    assert api.acltdtDestroyQueueRoute(route) == 0
    return status.value


def test_queue_route_copies_messages_to_two_queues(scene: Scene) -> None:
    targets = [new_queue(), new_queue(1)]
    assert api.acltdtEnqueueData(scene.queue, b"before", 6, None, 0, 0, 0) == 0
    routes, bound = _bind((scene.queue, targets[0]), (scene.queue, targets[1]))
    assert bound == 0
    size = ctypes.c_size_t()
    for text in (b"first", b"later"):
        assert api.acltdtEnqueueData(scene.queue, text, len(text), None, 0, 0, 0) == 0
    for text, queues in [(b"before", targets[:1]), (b"first", targets), (b"later", targets)]:
        for queue in queues:
            assert api.acltdtDequeueData(queue, scene.out, 64, ctypes.byref(size), None, 0, 0) == 0
            assert bytes(scene.buffer[:size.value]) == text
    for queue in targets:
        assert api.acltdtDestroyQueue(queue) == FAILURE
    assert api.acltdtUnbindQueueRoutes(routes) == 0
    assert api.acltdtUnbindQueueRoutes(routes) == FAILURE
    assert api.acltdtDestroyQueueRouteList(routes) == 0
    for queue in targets:
        assert api.acltdtDestroyQueue(queue) == 0


def test_queue_routes_with_wrong_queues_are_refused(scene: Scene) -> None:
    target = new_queue()
    routes, bound = _bind((scene.queue, target), (target, scene.queue), (scene.queue, scene.queue),
                          (scene.queue, 1 << 30), (scene.queue, target))
    assert bound == FAILURE
    assert [_status(routes, i) for i in range(5)] == [1, 2, 2, 2, 2]
    assert api.acltdtUnbindQueueRoutes(routes) == FAILURE
    assert api.acltdtDestroyQueueRouteList(routes) == 0
    assert api.acltdtDestroyQueue(target) == 0


@pytest.mark.parametrize(("mode", "source", "target", "found"), [
    (0, True, False, 2), (1, False, True, 1), (2, True, True, 1), (100, False, False, 0),
    (0, False, True, P), (1, True, False, P), (2, True, False, P), (3, True, True, P)])
def test_route_query_returns_the_matching_routes(scene: Scene, mode: int, source: bool, target: bool,
                                                 found: int) -> None:
    targets = [new_queue(), new_queue()]
    routes, bound = _bind(*((scene.queue, queue) for queue in targets))
    assert bound == 0
    assert api.acltdtSetQueueRouteQueryInfo(scene.query, 0, 4, ctypes.byref(ctypes.c_int(mode))) == 0
    for kind, queue, wanted in [(1, scene.queue, source), (2, targets[1], target)]:
        if wanted:
            assert api.acltdtSetQueueRouteQueryInfo(scene.query, kind, 4, ctypes.byref(ctypes.c_uint32(queue))) == 0
    asked = api.acltdtQueryQueueRoutes(scene.query, scene.routes)
    assert (api.acltdtGetQueueRouteNum(scene.routes) if asked == 0 else asked) == found
    assert api.acltdtUnbindQueueRoutes(routes) == 0
    assert api.acltdtDestroyQueueRouteList(routes) == 0
    for queue in targets:
        assert api.acltdtDestroyQueue(queue) == 0


def test_a_received_dataset_owns_its_items(scene: Scene) -> None:
    scene.buffer[0] = 5
    assert api.acltdtSendTensor(scene.channel, scene.filled, 0) == 0
    scene.buffer[0] = 9
    received = api.acltdtCreateDataset()
    assert api.acltdtReceiveTensor(scene.channel, received, FOREVER) == 0
    item = api.acltdtGetDataItem(received, 0)
    assert ctypes.string_at(api.acltdtGetDataAddrFromItem(item), 1) == b"\5"
    assert api.acltdtAddDataItem(received, scene.item) == 200006
    assert api.acltdtDestroyDataItem(item) == 0  # allowed: its place in the dataset stays empty
    assert api.acltdtGetDatasetSize(received) == 1
    assert api.acltdtGetDataItem(received, 0) is None
    assert api.acltdtGetDataItem(received, 1) is None
    assert api.acltdtGetDatasetName(received) == b""
    assert api.acltdtGetDatasetName(None) is None
    assert api.acltdtDestroyDataset(received) == 0
    assert api.acltdtDestroyDataset(received) == P


def test_wait_for_a_queue_ends_when_the_queue_is_destroyed(scene: Scene) -> None:
    queue = new_queue()
    codes: list[int] = []

    def wait() -> None:
        codes.append(api.acltdtDequeue(queue, scene.out, FOREVER))

    thread = threading.Thread(target=wait)
    thread.start()
    assert api.acltdtDestroyQueue(queue) == 0
    thread.join(300)
    assert codes == [RT]


def test_queue_works_with_many_producers_and_consumers(scene: Scene) -> None:
    queue, each, got = new_queue(2), 50, []
    lock = threading.Lock()

    def produce(number: int) -> None:
        assert api.aclrtSetDevice(0) == 0
        for i in range(each):
            value = ctypes.c_uint32(number * each + i)
            assert api.acltdtEnqueueData(queue, ctypes.byref(value), 4, None, 0, FOREVER, 0) == 0

    def consume() -> None:
        assert api.aclrtSetDevice(0) == 0
        for _ in range(each):
            value, size = ctypes.c_uint32(), ctypes.c_size_t()
            given = (ctypes.byref(value), 4, ctypes.byref(size), None, 0, FOREVER)
            assert api.acltdtDequeueData(queue, *given) == 0
            with lock:
                got.append(value.value)

    threads = [threading.Thread(target=produce, args=(i,)) for i in range(3)]
    threads += [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert sorted(got) == list(range(3 * each))
    assert api.acltdtDestroyQueue(queue) == 0


def test_the_process_that_made_a_queue_has_every_permission(scene: Scene) -> None:
    permission = ctypes.c_uint32()
    assert api.acltdtAttachQueue(scene.queue, 0, ctypes.byref(permission)) == 0
    assert permission.value == 7
    assert api.acltdtGrantQueue(scene.queue, os.getpid(), 2, 0) == 0
    assert api.acltdtAttachQueue(scene.queue, 0, ctypes.byref(permission)) == 0
    assert permission.value == 2
