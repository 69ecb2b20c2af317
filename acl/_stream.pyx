"""Streams, in which work runs in order, and events, which order streams among each other.

Every call that can block drops the GIL.  A stream may be used from any thread: one that has no
current context gets the stream's; one that has another is refused by the runtime (107003).  `close`
waits for the stream's work, then destroys it; a stream that is merely dropped is destroyed without
that wait.  Not here: copies (`_copy`) and memory (`_buffer`).
"""

cimport cython

from acl._callback cimport Callbacks
from acl._device cimport (
    alive_add,
    current_context,
    current_device,
    current_ensure,
    fork_count,
    forked_raise,
    leaving,
)
from acl._error cimport check
from acl._libacl cimport (
    ACL_ERROR_RT_CONTEXT_NULL,
    ACL_ERROR_RT_STREAM_CONTEXT,
    ACL_EVENT_RECORDED_STATUS_COMPLETE,
    ACL_EVENT_SYNC,
    ACL_EVENT_TIME_LINE,
    ACL_STREAM_STATUS_COMPLETE,
    aclError,
    aclrtContext,
    aclrtCreateEventExWithFlag,
    aclrtCreateStreamWithConfig,
    aclrtDestroyEvent,
    aclrtDestroyStream,
    aclrtEvent,
    aclrtEventElapsedTime,
    aclrtEventRecordedStatus,
    aclrtGetCurrentContext,
    aclrtQueryEventStatus,
    aclrtRecordEvent,
    aclrtSetCurrentContext,
    aclrtSetStreamFailureMode,
    aclrtStream,
    aclrtStreamAbort,
    aclrtStreamQuery,
    aclrtStreamStatus,
    aclrtStreamWaitEvent,
    aclrtSynchronizeEvent,
    aclrtSynchronizeEventWithTimeout,
    aclrtSynchronizeStream,
    aclrtSynchronizeStreamWithTimeout,
)
from libc.stdint cimport int32_t, uint32_t

from acl._device import Device, ordinal_of, timeout_checked

__all__ = ["Event", "Stream"]

# Called with each new Stream, in order: how a pool reaches every stream made from then on.
made_hooks: list = []
# Called with the handle of each Stream that is about to end, when all its work is done.
done_hooks: list = []
# Called with the handle of each Stream of ours that is destroyed: what was noted for it is over.
ended_hooks: list = []


cdef int stream_raw(Stream stream, aclrtStream *raw) except -1:
    if stream is None:
        current_ensure(NULL)
        raw[0] = NULL
        return 0
    if stream.is_closed:
        raise ValueError("the Stream is closed")
    if stream.made != fork_count:
        forked_raise(stream)
    current_ensure(stream.context)
    raw[0] = stream.raw
    return 0


cdef int destroy_in_context(aclrtStream raw, aclrtContext context) noexcept nogil:
    """Destroy a stream from a thread that works in another context, or in none."""
    cdef aclrtContext before = NULL
    cdef int status
    aclrtGetCurrentContext(&before)
    status = aclrtSetCurrentContext(context)
    if status == 0:
        status = aclrtDestroyStream(raw)
    if before is not NULL:
        aclrtSetCurrentContext(before)
    return status


cdef int stream_destroy(Stream stream) noexcept nogil:
    """Destroy an owned stream, if it is not yet; its status."""
    cdef aclrtStream raw = stream.raw
    cdef int status
    stream.is_closed = True
    stream.raw = NULL
    if not stream.owned or raw is NULL:
        return 0
    status = aclrtDestroyStream(raw)
    if status != ACL_ERROR_RT_STREAM_CONTEXT and status != ACL_ERROR_RT_CONTEXT_NULL:
        return status
    if stream.context is not NULL:
        status = destroy_in_context(raw, stream.context)
    return status


cdef uint32_t word_of(object value, str name) except? 0:
    """An argument that C takes as an unsigned number of 32 bits."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not 0 <= value.__index__() < 1 << 32:
        raise ValueError(f"{name} must be from 0 to 4294967295, not {value}")
    return value.__index__()


@cython.final
cdef class Stream:
    """A queue of work on a device, worked off in order.

    Parameters
    ----------
    device : Device or int, optional
        Where; the thread's current device, or 0, if not given.  It becomes current in the thread.
    priority : int
        As `Device.stream_priorities` bounds it; a lower number goes first.
    flags : int
        As `aclrtCreateStreamWithConfig` takes them.
    stop_on_failure : bool
        Whether work queued after a failed task is dropped instead of run.
    """

    def __init__(
        self, device=None, *, priority=0, flags=0, bint stop_on_failure=False
    ):
        cdef uint32_t rank = word_of(priority, "priority"), bits = word_of(flags, "flags")
        cdef aclError status
        cdef aclrtStream raw = NULL
        if self.raw is not NULL or self.is_closed:
            raise ValueError(f"{self!r} exists already")
        if device is not None:
            Device(ordinal_of(device)).use()
        else:
            current_ensure(NULL)
        with nogil:
            status = aclrtCreateStreamWithConfig(&raw, rank, bits)
        check(status, "aclrtCreateStreamWithConfig")
        self.raw = raw
        self.owned = True
        self.made = fork_count
        self.device = current_device()
        self.context = current_context()
        alive_add(1)
        if stop_on_failure:
            with nogil:
                status = aclrtSetStreamFailureMode(raw, 1)
            if status != 0:
                stream_release(self)
            check(status, "aclrtSetStreamFailureMode")
        for hook in made_hooks:
            hook(self)

    @staticmethod
    def default():
        """The default stream of whatever context is current where it is used."""
        current_ensure(NULL)
        cdef Stream stream = Stream.__new__(Stream)
        stream.made = fork_count
        stream.device = -1
        return stream

    @staticmethod
    def from_handle(size_t handle):
        """A stream that somebody else made, borrowed: `close` does not destroy it."""
        cdef Stream stream = Stream.default()
        stream.raw = <aclrtStream> handle
        return stream

    @property
    def handle(self):
        """The `aclrtStream` as an integer; 0 for the default stream."""
        cdef aclrtStream raw
        stream_raw(self, &raw)
        return <size_t> raw

    @property
    def closed(self):
        """Whether `close` has run."""
        return self.is_closed

    def query(self):
        """Whether all work queued so far is done; never blocks."""
        cdef aclrtStream raw
        cdef aclrtStreamStatus state
        cdef aclError status
        stream_raw(self, &raw)
        with nogil:
            status = aclrtStreamQuery(raw, &state)
        check(status, "aclrtStreamQuery")
        return state == ACL_STREAM_STATUS_COMPLETE

    def synchronize(self, timeout_ms=None):
        """Wait until all work queued so far is done.

        Raises `acl.TimeoutError` when `timeout_ms` runs out (the work goes on), and the exception
        of a callback that failed since the last call.
        """
        cdef aclrtStream raw
        cdef aclError status
        cdef int32_t limit = timeout_checked(timeout_ms)
        if limit < 0:
            self.wait_done()
        else:
            stream_raw(self, &raw)
            with nogil:
                status = aclrtSynchronizeStreamWithTimeout(raw, limit)
            check(status, "aclrtSynchronizeStreamWithTimeout")
        if self.callbacks is not None:
            self.callbacks.settle()

    cdef int wait_done(self) except -1:
        """Wait for the stream's work; callbacks' exceptions stay where they are."""
        cdef aclrtStream raw
        cdef aclError status
        stream_raw(self, &raw)
        with nogil:
            status = aclrtSynchronizeStream(raw)
        return check(status, "aclrtSynchronizeStream")

    def wait_event(self, Event event not None):
        """Let work queued from here on wait for an event; the host does not wait."""
        cdef aclrtStream raw
        cdef aclError status
        stream_raw(self, &raw)
        event_open(event)
        with nogil:
            status = aclrtStreamWaitEvent(raw, event.raw)
        check(status, "aclrtStreamWaitEvent")

    def record(self, Event event=None):
        """Record an event, a new one if none is given, behind the work queued; returns it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def launch(self, function, *arguments):
        """Call a Python function in stream order, on a thread of the runtime.

        The stream waits until the function returns, and a device runs one such function at a time,
        whatever the stream: keep it short.  The function must not call the device or wait for this
        stream: the runtime refuses that in callbacks.  An exception in it goes to
        `sys.unraisablehook`, and the next `synchronize` raises it again.
        """
        cdef aclrtStream raw
        if not callable(function):
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        stream_raw(self, &raw)
        if self.callbacks is None:
            self.callbacks = Callbacks()
        self.callbacks.launch(raw, function, arguments)

    def abort(self):
        """Drop the work queued on the stream; what runs is stopped where the device can."""
        cdef aclrtStream raw
        cdef aclError status
        stream_raw(self, &raw)
        with nogil:
            status = aclrtStreamAbort(raw)
        check(status, "aclrtStreamAbort")

    def on_close(self, closer):
        """Have `closer(handle)` called once the stream has been destroyed by `close`."""
        if self.closers is None:
            self.closers = []
        self.closers.append(closer)

    def close(self):
        """Wait for the stream's work, then destroy it; a second call does nothing.

        An error of the work is raised after the stream is gone.
        """
        if self.is_closed:
            return
        if self.made != fork_count:
            forked_raise(self)
        try:
            if self.owned:
                self.wait_done()
                for hook in done_hooks:
                    hook(<size_t> self.raw)
        finally:
            stream_release(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        if self.raw is NULL or not self.owned or leaving or self.made != fork_count:
            return
        cdef size_t handle = <size_t> self.raw
        alive_add(-1)
        with nogil:
            stream_destroy(self)
        ended_tell(handle)

    def __eq__(self, other):
        return isinstance(other, Stream) and self.raw is (<Stream> other).raw and (
            self.is_closed == (<Stream> other).is_closed
        )

    def __hash__(self):
        return object.__hash__(self) if self.is_closed else hash((Stream, <size_t> self.raw))

    def __repr__(self):
        if self.is_closed:
            return "<Stream closed>"
        if self.raw is NULL:
            return "<Stream default>"
        return f"<Stream handle={<size_t> self.raw:#x}>"


cdef int stream_release(Stream stream) except -1:
    """Destroy the stream, then tell those who asked to be told."""
    cdef aclrtStream raw = stream.raw
    cdef aclError status
    if stream.callbacks is not None:
        stream.callbacks.end(raw)
    if stream.owned and raw is not NULL:
        alive_add(-1)
    with nogil:
        status = stream_destroy(stream)
    while stream.closers:
        stream.closers.pop(0)(<size_t> raw)
    if stream.owned:
        ended_tell(<size_t> raw)
    return check(status, "aclrtDestroyStream")


cdef int ended_tell(size_t handle) noexcept:
    for hook in ended_hooks:
        hook(handle)
    return 0


cdef int event_open(Event event) except -1:
    """Raises for an event that is closed or a parent process's."""
    if event.raw is NULL:
        raise ValueError("the Event is closed")
    if event.made != fork_count:
        forked_raise(event)
    return 0


@cython.final
cdef class Event:
    """A mark in a stream that others can wait for.

    Parameters
    ----------
    timing : bool
        Whether to take the time too, so that `elapsed_ms` can be asked.
    """

    def __init__(self, *, bint timing=False):
        cdef aclError status
        cdef aclrtEvent raw = NULL
        cdef uint32_t flags = ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE if timing else ACL_EVENT_SYNC
        if self.raw is not NULL:
            raise ValueError("the Event exists already")
        current_ensure(NULL)
        with nogil:
            status = aclrtCreateEventExWithFlag(&raw, flags)
        check(status, "aclrtCreateEventExWithFlag")
        self.raw = raw
        self.owned = True
        self.made = fork_count
        self.timing = timing
        alive_add(1)

    @staticmethod
    def from_handle(size_t handle, *, bint timing=False):
        """An event that somebody else made, borrowed: `close` does not destroy it."""
        if handle == 0:
            raise ValueError("handle must be an aclrtEvent, not 0")
        cdef Event event = Event.__new__(Event)
        event.raw = <aclrtEvent> handle
        event.made = fork_count
        event.timing = timing
        return event

    @property
    def handle(self):
        """The `aclrtEvent` as an integer."""
        event_open(self)
        return <size_t> self.raw

    @property
    def closed(self):
        """Whether `close` has run."""
        return self.raw is NULL

    def record(self, Stream stream=None):
        """Record the event behind the work queued so far on a stream (the default one if None)."""
        cdef aclrtStream raw
        cdef aclError status
        event_open(self)
        stream_raw(stream, &raw)
        with nogil:
            status = aclrtRecordEvent(self.raw, raw)
        check(status, "aclrtRecordEvent")

    def query(self):
        """Whether the event has been recorded and reached; never blocks."""
        cdef aclrtEventRecordedStatus state
        cdef aclError status
        event_open(self)
        with nogil:
            status = aclrtQueryEventStatus(self.raw, &state)
        check(status, "aclrtQueryEventStatus")
        return state == ACL_EVENT_RECORDED_STATUS_COMPLETE

    def synchronize(self, timeout_ms=None):
        """Wait until the event is reached.

        Raises `acl.TimeoutError` when `timeout_ms` runs out.
        """
        cdef aclError status
        cdef int32_t limit = timeout_checked(timeout_ms)
        event_open(self)
        if limit < 0:
            with nogil:
                status = aclrtSynchronizeEvent(self.raw)
            check(status, "aclrtSynchronizeEvent")
        else:
            with nogil:
                status = aclrtSynchronizeEventWithTimeout(self.raw, limit)
            check(status, "aclrtSynchronizeEventWithTimeout")

    def elapsed_ms(self, Event end not None):
        """Milliseconds from this event to `end`, both made with ``timing=True`` and reached."""
        cdef float elapsed = 0
        cdef aclError status
        event_open(self)
        event_open(end)
        if not (self.timing and end.timing):
            raise ValueError("elapsed_ms needs two events made with timing=True")
        with nogil:
            status = aclrtEventElapsedTime(&elapsed, self.raw, end.raw)
        check(status, "aclrtEventElapsedTime")
        return elapsed

    def close(self):
        """Destroy the event; a second call does nothing."""
        cdef aclrtEvent raw = self.raw
        cdef aclError status
        if raw is NULL:
            return
        if self.made != fork_count:
            forked_raise(self)
        self.raw = NULL
        if self.owned:
            alive_add(-1)
            with nogil:
                status = aclrtDestroyEvent(raw)
            check(status, "aclrtDestroyEvent")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        if self.raw is NULL or not self.owned or leaving or self.made != fork_count:
            return
        alive_add(-1)
        with nogil:
            aclrtDestroyEvent(self.raw)

    def __repr__(self):
        return "<Event closed>" if self.raw is NULL else f"<Event handle={<size_t> self.raw:#x}>"
