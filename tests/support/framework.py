"""A minimal framework with a task queue, on the C functions of the adapter for real frameworks.

Work is put into a queue and launched on its stream later, but memory is freed immediately, as in torch_npu.  A fill
writes a block and copies it to pinned memory.  So if a page is unmapped too early, the stream fails or the bytes
differ.

A process can have only one such framework, because the functions that the adapter got cannot be removed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import acl
from acl.adapters.pluggable import _door
from support.calls import api

__all__ = ["Framework"]

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_DRAIN = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_bool)
_MARK = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_MARK_DONE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
_MARK_DROP = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_THROW = ctypes.CFUNCTYPE(None, ctypes.c_char_p)


class Framework:
    """The malloc and free functions of one instance of the adapter, and the framework's task queue."""

    def __init__(self, seat: int = 0) -> None:
        self.library = ctypes.CDLL(_door.path())
        suffix = f"_{seat}" if seat else ""
        self._malloc = _MALLOC((f"aclpool_malloc{suffix}", self.library))
        self._free = _FREE((f"aclpool_free{suffix}", self.library))
        self._queue: list[Callable[[], None]] = []
        self._wrong: list[str] = []
        self._reads: list[tuple[acl.HostBuffer, int, int]] = []
        self._hooks: list[object] = []
        self._marks: dict[int, ctypes.c_void_p | None] = {}
        self.drains = 0

    def malloc(self, size: int, stream: acl.Stream | None = None, device: int = 0) -> int:
        """Allocate memory and return its address; 0 if that fails."""
        return self._malloc(size, device, stream.handle if stream is not None else None) or 0

    def free(self, address: int, size: int = 0, stream: acl.Stream | None = None, device: int = 0) -> None:
        self._free(address, size, device, stream.handle if stream is not None else None)

    def can_drain(self) -> None:
        """Give the adapter the function that empties the queue."""
        def drain(check_error: bool) -> bool:
            self.drains += 1
            self.submit()
            return int(api.aclrtSynchronizeDevice()) == 0

        self._hooks.append(made := _DRAIN(drain))
        address = ctypes.cast(made, ctypes.c_void_p).value
        assert address is not None
        _door.hook(drain=address)

    def can_mark(self) -> None:
        """Give the adapter the functions for queue markers: make, query and delete one."""
        def mark(device: int, stream: int) -> int:
            number = len(self._marks) + 1
            self._marks[number] = None

            def submit() -> None:
                event = ctypes.c_void_p()
                api.aclrtCreateEvent(ctypes.byref(event))
                api.aclrtRecordEvent(event, stream)
                self._marks[number] = event

            self._queue.append(submit)
            return number

        def done(number: int) -> bool:
            status = ctypes.c_int32()
            event = self._marks[number]
            return event is not None and api.aclrtQueryEventStatus(event, ctypes.byref(status)) == 0 and bool(status)

        def drop(number: int) -> None:
            api.aclrtDestroyEvent(self._marks[number])

        made = (_MARK(mark), _MARK_DONE(done), _MARK_DROP(drop))
        self._hooks.append(made)
        addresses = [ctypes.cast(one, ctypes.c_void_p).value or 0 for one in made]
        _door.hook(marks=(addresses[0], addresses[1], addresses[2]))

    @property
    def marks(self) -> int:
        """Return the number of markers that were set."""
        return len(self._marks)

    def throws(self, told: list[str]) -> None:
        """Append the messages of refused calls to `told`.

        A real framework throws C++ exceptions instead, but Python code cannot.
        """
        self._hooks.append(made := _THROW(lambda message: told.append(message.decode())))
        address = ctypes.cast(made, ctypes.c_void_p).value
        assert address is not None
        _door.hook(throw_memory=address, throw_refusal=address)

    def fill(self, address: int, size: int, value: int, stream: acl.Stream) -> None:
        """Queue two tasks: fill a block with a byte, then read the block."""
        host = acl.HostBuffer(size)
        self._reads.append((host, size, value))

        def submit() -> None:
            for name, status in (
                ("memset", api.aclrtMemsetAsync(
                    ctypes.c_void_p(address), ctypes.c_size_t(size), value, ctypes.c_size_t(size), stream.handle)),
                ("memcpy", api.aclrtMemcpyAsync(
                    ctypes.c_void_p(host.address), ctypes.c_size_t(size), ctypes.c_void_p(address),
                    ctypes.c_size_t(size), 2, stream.handle)),
            ):
                if status:
                    self._wrong.append(f"{name} of {size} bytes: {status}")

        self._queue.append(submit)

    def submit(self, count: int | None = None) -> None:
        """Launch the `count` oldest tasks, or all, on their streams."""
        while self._queue and count != 0:
            self._queue.pop(0)()
            count = None if count is None else count - 1

    @property
    def queued(self) -> int:
        return len(self._queue)

    def finish(self) -> list[str]:
        """Submit all work and wait for it; return a line for each error, which must be none."""
        self.submit()
        status = int(api.aclrtSynchronizeDevice())
        if status:
            self._wrong.append(f"the device: {status}")
        for host, size, value in self._reads:
            content = bytes(memoryview(host)[:size])
            if content.count(value) != size:
                self._wrong.append(f"a block of {size} bytes held {sorted(set(content))[:4]}, not {value}")
        self._reads.clear()
        return self._wrong
