"""Streams, whose work runs in order, and events, by which one stream waits for another.

Every call that can block releases the GIL.  Any thread may use a stream.  If the thread has no
current context, the stream's context becomes current.  If it has another context, the runtime
refuses the call (status 107003).  `close` waits for the stream's work, then destroys the stream.
If the object is deleted instead, the stream is destroyed when its work is done.  Copies are in
`_copy`, memory is in `_buffer`, the outcomes of work are in `_work`.
"""

cimport cython

from acl.runtime._callback cimport Callbacks
from acl.runtime._device cimport (
    alive_add,
    callback_check,
    current_context,
    current_device,
    current_ensure,
    device_set,
    fork_count,
    forked_raise,
    leaving,
    runtime_start,
)
from acl.runtime._later cimport End, end_soon, later_drain, later_made_room
from acl.runtime._work cimport Progress, progress_new, progress_of, says_nothing, work_mark
from acl.bind._error cimport check
from acl.bind.generated._libacl cimport (
    ACL_ERROR_INVALID_PARAM,
    ACL_ERROR_RT_CONTEXT_NULL,
    ACL_ERROR_RT_EVENT_SYNC_TIMEOUT,
    ACL_ERROR_RT_STREAM_CONTEXT,
    ACL_EVENT_RECORDED_STATUS_COMPLETE,
    ACL_EVENT_SYNC,
    ACL_EVENT_TIME_LINE,
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
    aclrtStreamWaitEvent,
    aclrtSynchronizeEventWithTimeout,
)
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, uint32_t

import time

from acl.runtime._device import ordinal_of, timeout_checked
from acl.bind._error import InvalidArgumentError, TimeoutError
from acl.runtime._names import ENDED, name_drop, name_give, stream_name
from acl.runtime._work import abort_error

__all__ = ["Event", "Stream"]

cdef enum:
    SLICE_MS = 50              # longest call of ACL in a wait; between two calls, Ctrl-C is noticed

# Functions to call with each new Stream, in this order; a pool adds one to register new streams.
made_hooks: list = []
# Functions to call with the handle of each owned Stream before it is destroyed.
ended_hooks: list = []
# Functions to call with the handle of a Stream after a wait for it.  If the runtime has reported a
# failed task of this stream to a wait for something else, they return its status; else 0.
fault_hooks: list = []


cdef int stream_raw(Stream stream, aclrtStream *raw) except -1:
    if stream is None:
        current_ensure(NULL)
        raw[0] = NULL
        return 0
    stream_open(stream)
    current_ensure(stream.context)
    if stream.raw is NULL and stream.context is not current_context():
        raise InvalidArgumentError(
            ACL_ERROR_RT_STREAM_CONTEXT, "acl.Stream",
            f"it is the default stream of device {stream.device}, in another context than the "
            "thread's current one")
    raw[0] = stream.raw
    return 0


cdef int stream_open(Stream stream) except -1:
    """Raise an error if a stream is closed, has no handle yet, or was made by a parent process."""
    if stream.is_closed or stream.progress is None:
        raise ValueError("the Stream is closed")
    if stream.made != fork_count:
        forked_raise(stream)
    return 0


cdef int stream_device_check(Stream stream, int device, str what) except -1:
    if 0 <= device != stream.device >= 0:
        raise InvalidArgumentError(
            ACL_ERROR_INVALID_PARAM, "acl.Stream",
            f"{what} is on device {device}, the stream is on device {stream.device}")
    return 0


cdef size_t handle_checked(object value, str name, str what) except? 0:
    """Return a user's handle; refuse small numbers, because the runtime would crash on them."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be {what}, not {type(value).__name__}")
    if not 0 <= value < 1 << 64 or 0 < value < LEAST_HANDLE:
        raise ValueError(f"{name} must be {what}, not {value}")
    return value


cdef Stream stream_default():
    return stream_borrowed(NULL)


cdef Stream stream_borrowed(aclrtStream raw):
    """Return a Stream of a handle that other code owns.

    If this package has not made a Stream of the handle before, the current context is taken as its
    context.
    """
    cdef Stream stream = Stream.__new__(Stream)
    current_ensure(NULL)
    stream.progress = progress_of(raw, current_context(), current_device())
    stream.raw = raw
    stream.made = fork_count
    stream.device = stream.progress.device
    stream.context = stream.progress.context
    return stream


cdef int destroy_in_context(aclrtStream raw, aclrtContext context) noexcept nogil:
    """Destroy a stream while its context is current; then restore the thread's context.

    Return the status.
    """
    cdef aclrtContext before = NULL
    cdef int status
    aclrtGetCurrentContext(&before)
    status = aclrtSetCurrentContext(context)
    if status == 0:
        status = aclrtDestroyStream(raw)
    if before is not NULL:
        aclrtSetCurrentContext(before)
    return status


cdef int raw_destroy(aclrtStream raw, aclrtContext context) noexcept nogil:
    cdef int status = aclrtDestroyStream(raw)
    if status != ACL_ERROR_RT_STREAM_CONTEXT and status != ACL_ERROR_RT_CONTEXT_NULL:
        return status
    return destroy_in_context(raw, context)


cdef uint32_t word_of(object value, str name) except? 0:
    """Return an argument as an unsigned number of 32 bits; raise an error if it is not one."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not 0 <= value.__index__() < 1 << 32:
        raise ValueError(f"{name} must be from 0 to 4294967295, not {value}")
    return value.__index__()


@cython.final
@cython.no_gc_clear                             # __dealloc__ gives its attributes to a StreamEnd
cdef class Stream:
    """A queue of work on a device, which runs in order.

    Parameters
    ----------
    device : Device or int, optional
        The stream's device; it becomes current in the thread.  Default: the thread's current
        device, or 0 if it has none.
    priority : int
        A priority within `Device.stream_priorities`; lower numbers run first.
    flags : int
        The flags of `aclrtCreateStreamWithConfig`.
    stop_on_failure : bool
        True: after a failed task, the work queued behind it is dropped.  False: it still runs.
    name : str, optional
        Its name in metrics, reports and logs.  Default: a small number.  Metrics of streams with
        the same name are added up.
    """

    def __init__(
        self, device=None, *, priority=0, flags=0, bint stop_on_failure=False, name=None
    ):
        cdef uint32_t rank = word_of(priority, "priority"), bits = word_of(flags, "flags")
        cdef aclError status
        cdef aclrtStream raw = NULL
        if self.progress is not None:
            raise ValueError(f"{self!r} exists already")
        name_check(name)
        if device is not None:
            callback_check()
            runtime_start()
            device_set(ordinal_of(device), False)
        else:
            current_ensure(NULL)
        with nogil:
            status = aclrtCreateStreamWithConfig(&raw, rank, bits)
        if later_made_room(status):
            with nogil:
                status = aclrtCreateStreamWithConfig(&raw, rank, bits)
        check(status, "aclrtCreateStreamWithConfig")
        try:
            self.progress = progress_new(raw, current_context(), current_device())
        except BaseException:                   # such as Ctrl-C; __dealloc__ needs `progress`
            with nogil:
                aclrtDestroyStream(raw)
            raise
        self.raw = raw
        self.owned = True
        self.made = fork_count
        self.device = self.progress.device
        self.context = self.progress.context
        alive_add(1)
        name_give(<size_t> raw, name)
        if stop_on_failure:
            with nogil:
                status = aclrtSetStreamFailureMode(raw, 1)
            if status != 0:
                self.close()
            check(status, "aclrtSetStreamFailureMode")
        for hook in list(made_hooks):           # a hook, or another thread, may remove one
            hook(self)

    @staticmethod
    def default():
        """Return the default stream of the context that is current in this thread."""
        return stream_default()

    @staticmethod
    def from_handle(handle):
        """Return a Stream for a handle of other code; `close` does not destroy it.

        If this package has not made a Stream of this handle before, the handle must be of the
        thread's current context.
        """
        return stream_borrowed(<aclrtStream> handle_checked(
            handle, "handle", "an aclrtStream, or 0 for the default stream"))

    @property
    def handle(self):
        """The `aclrtStream` as an integer; 0 for the default stream."""
        stream_open(self)
        return <size_t> self.raw

    @property
    def name(self):
        """The name in metrics, reports and logs: the one given, else a small number.

        ``"default"`` for the default stream, ``"ended"`` once the stream is closed.
        """
        return ENDED if self.closed else stream_name(<size_t> self.raw)

    @property
    def closed(self):
        """True once `close` has run."""
        return self.is_closed or self.progress is None

    def query(self):
        """Return True if all work queued so far is done; never blocks."""
        stream_open(self)
        current_ensure(self.context)
        return self.progress.query()

    def synchronize(self, timeout_ms=None):
        """Wait until all work queued so far is done.

        Raises `acl.TimeoutError` when `timeout_ms` runs out; the work continues.  If work has
        failed since the last call, raises its error, unless the work's own object has raised it
        already.  Raises the exception of a callback that failed since the last call.
        """
        cdef int32_t limit = timeout_checked(timeout_ms)
        stream_open(self)
        stream_tell(self, self.progress.wait(limit))

    def wait(self, timeout=None):
        """Wait as `synchronize` does, in a coroutine without blocking the event loop.

        `timeout` is in seconds.
        """
        from acl.execution._await import stream_wait

        stream_open(self)
        return stream_wait(self, work_mark(self.progress), timeout)

    def wait_event(self, Event event not None):
        """Make work that is queued from now on wait for an event; the host does not wait."""
        cdef aclrtStream raw
        cdef aclError status
        stream_raw(self, &raw)
        event_open(event)
        with nogil:
            status = aclrtStreamWaitEvent(raw, event.raw)
        check(status, "aclrtStreamWaitEvent")

    def record(self, Event event=None):
        """Record `event` behind the queued work, and return it.  None: make a new event."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def launch(self, function, *arguments):
        """Queue a call of a Python function; a thread of the runtime calls it in stream order.

        Keep the function short: its stream waits until it returns, and a device runs one such
        function at a time for all streams.  The function must not call the device or wait for this
        stream: the runtime refuses that in callbacks.  If the function raises an exception, it is
        passed to `sys.unraisablehook`, and the next `synchronize` raises it again.
        """
        cdef aclrtStream raw
        if not callable(function):
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        cdef Callbacks callbacks
        stream_raw(self, &raw)
        if self.progress.callbacks is None:
            self.progress.callbacks = Callbacks()
        callbacks = self.progress.callbacks
        callbacks.launch(raw, self.progress, function, arguments)

    def abort(self):
        """Drop the work queued on the stream, and stop running work if the device can do that.

        Afterwards, all work that is not known to be done counts as failed: reading its outputs
        raises an error.
        """
        cdef aclrtStream raw
        cdef aclError status
        stream_raw(self, &raw)
        with nogil:
            status = aclrtStreamAbort(raw)
        check(status, "aclrtStreamAbort")
        self.progress.fail(abort_error(<size_t> raw), True)

    def on_close(self, closer):
        """Register a function to call with the handle after `close` has destroyed the stream."""
        if not callable(closer):
            raise TypeError(f"closer must be callable, not {type(closer).__name__}")
        if self.closers is None:
            self.closers = []
        self.closers.append(closer)

    def close(self):
        """Wait for the stream's work, then destroy it; a second call does nothing.

        If work or a callback has failed, the error is raised after the stream is destroyed.
        """
        if self.is_closed or self.progress is None:
            return
        if self.made != fork_count:
            forked_raise(self)
        callback_check()
        error = None
        if self.owned:
            error = self.progress.wait(-1)      # Ctrl-C leaves the stream open
            if error is not None and says_nothing(error.code):
                raise error                     # the work may still run: the stream stays open
            if error is None:
                error, self.progress.untold = self.progress.untold, None
        stream_release(self, error)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __dealloc__(self):
        cdef StreamEnd end
        if self.raw is NULL or not self.owned or leaving or self.made != fork_count:
            return
        end = StreamEnd.__new__(StreamEnd)
        end.progress = self.progress
        end_soon(end)

    def __eq__(self, other):
        return self is other or (
            isinstance(other, Stream) and self.progress is not None
            and self.progress is (<Stream> other).progress
            and not self.is_closed and not (<Stream> other).is_closed)

    def __hash__(self):
        return hash(self.progress)

    def __repr__(self):
        if self.is_closed or self.progress is None:
            return "<Stream closed>"
        if self.raw is NULL:
            return f"<Stream default of device {self.device}>"
        return f"<Stream {self.name} handle={<size_t> self.raw:#x}>"


cdef int name_check(object name) except -1:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    if name == "":
        raise ValueError("name must not be empty")
    return 0


ended_hooks.append(name_drop)


def raise_told(Stream stream not None):
    """Raise the errors that `synchronize` would raise; another thread has waited for the stream."""
    stream_open(stream)
    stream_tell(stream, None)


cdef int stream_tell(Stream stream, object error) except -1:
    """Raise `error`, the error of a wait.

    If it is None, raise the first error of the stream that no call has raised yet: of a work, of a
    task that a wait for something else has found (`fault_hooks`), or of a callback.
    """
    cdef Callbacks callbacks
    later_drain()
    if error is None:
        error = stream.progress.untold
    if error is not None:
        if not isinstance(error, TimeoutError):
            stream.progress.untold = None
        raise error
    for hook in list(fault_hooks):
        check(hook(stream.handle), "aclrtSynchronizeStream")
    if stream.progress.callbacks is not None:
        callbacks = stream.progress.callbacks
        callbacks.settle()
    return 0


cdef int stream_release(Stream stream, object error) except -1:
    """Destroy the stream and call its closers, then raise the first error that occurred."""
    cdef Progress progress = stream.progress
    cdef aclrtStream raw = stream.raw
    cdef aclError status = 0
    if stream.is_closed:                        # another thread has closed it while this one waited
        return 0
    stream.is_closed = True
    stream.raw = NULL
    if stream.owned:
        error = progress_close(progress, error, &status)
        stream.refused = status != 0
    closers, stream.closers = stream.closers, None
    error = told_all(closers or [], <size_t> raw, error)
    later_drain()
    if error is not None:
        raise error
    return check(status, "aclrtDestroyStream")


cdef object progress_close(Progress progress, object error, aclError *status):
    """End a stream's callbacks, call the hooks, and destroy the stream; return the first error.

    All three are done even if one raises an exception, such as that of a signal handler.
    """
    cdef aclrtStream raw = progress.raw
    cdef Callbacks callbacks = progress.callbacks
    progress.callbacks = None
    try:
        if callbacks is not None:
            callbacks.end(raw)
            if error is None and callbacks.errors:
                error = callbacks.errors.pop(0)
    except BaseException as raised:
        error = error or raised
    try:
        progress.end()
    except BaseException as raised:
        error = error or raised
    error = told_all(ended_hooks, <size_t> raw, error)
    alive_add(-1)
    with nogil:
        status[0] = raw_destroy(raw, progress.context)
    return error


cdef object told_all(list hooks, size_t handle, object error):
    """Call all functions with a handle.

    Return `error` if it is set, else the first error of a call.
    """
    for hook in list(hooks):
        try:
            hook(handle)
        except BaseException as raised:
            error = error or raised
    return error


@cython.final
cdef class StreamEnd(End):
    """The destruction of a stream whose Python object was deleted; ready when its work is done."""

    cdef Progress progress

    cdef bint ready(self, bint wait) except -1:
        cdef Callbacks callbacks = self.progress.callbacks
        if wait:
            self.progress.settle()
            return True
        if not self.progress.idle() or self.progress.queued > self.progress.done:
            return False
        if callbacks is None or callbacks.reporter is None:
            return True
        callbacks.reporter.stopping = True      # `finish` joins the thread after it has ended
        return not callbacks.reporter.is_alive()

    cdef int finish(self) except -1:
        cdef aclError status                 # ignored: no caller waits for the result of a deletion
        error = progress_close(self.progress, None, &status)
        if error is not None and not isinstance(error, Exception):
            raise error                         # an exception of a signal handler, such as Ctrl-C
        return 0


cdef int event_open(Event event) except -1:
    """Raise an error for an event that is closed or was made by a parent process."""
    if event.raw is NULL:
        raise ValueError("the Event is closed")
    if event.made != fork_count:
        forked_raise(event)
    return 0


@cython.final
cdef class EventEnd(End):
    """The destruction of an event whose Python object was deleted."""

    cdef aclrtEvent raw

    cdef int finish(self) except -1:
        alive_add(-1)
        with nogil:
            aclrtDestroyEvent(self.raw)
        return 0


@cython.final
cdef class Event:
    """A point in a stream's queue, for which other streams and the host can wait.

    Parameters
    ----------
    timing : bool
        True to record the time too, so that `elapsed_ms` can be called.
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
        if later_made_room(status):
            with nogil:
                status = aclrtCreateEventExWithFlag(&raw, flags)
        check(status, "aclrtCreateEventExWithFlag")
        self.raw = raw
        self.owned = True
        self.made = fork_count
        self.timing = timing
        alive_add(1)

    @staticmethod
    def from_handle(handle, *, bint timing=False):
        """Return an Event for a handle of other code; `close` does not destroy it."""
        cdef size_t address = handle_checked(handle, "handle", "an aclrtEvent")
        cdef Event event = Event.__new__(Event)
        if address == 0:
            raise ValueError("handle must be an aclrtEvent, not 0")
        event.raw = <aclrtEvent> address
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
        """True once `close` has run."""
        return self.raw is NULL

    def record(self, Stream stream=None):
        """Record the event behind the work queued so far on a stream; None: the default stream."""
        cdef aclrtStream raw
        cdef aclError status
        event_open(self)
        stream_raw(stream, &raw)
        with nogil:
            status = aclrtRecordEvent(self.raw, raw)
        check(status, "aclrtRecordEvent")

    def query(self):
        """Return True if the stream has reached the recorded event; never blocks."""
        cdef aclrtEventRecordedStatus state
        cdef aclError status
        event_open(self)
        with nogil:
            status = aclrtQueryEventStatus(self.raw, &state)
        check(status, "aclrtQueryEventStatus")
        return state == ACL_EVENT_RECORDED_STATUS_COMPLETE

    def synchronize(self, timeout_ms=None):
        """Wait until the stream has reached the recorded event.

        Raises `acl.TimeoutError` when `timeout_ms` runs out.
        """
        cdef aclError status
        cdef int32_t limit = timeout_checked(timeout_ms)
        cdef int32_t slice_ms = SLICE_MS
        event_open(self)
        callback_check()
        end = None if limit < 0 else time.monotonic() + limit / 1000
        while True:
            if end is not None:
                slice_ms = min(max(int((end - time.monotonic()) * 1000), 1), SLICE_MS)
            with nogil:
                status = aclrtSynchronizeEventWithTimeout(self.raw, slice_ms)
            if status != ACL_ERROR_RT_EVENT_SYNC_TIMEOUT or (
                    end is not None and time.monotonic() >= end):
                break
            PyErr_CheckSignals()
        check(status, "aclrtSynchronizeEventWithTimeout")

    def wait(self, timeout=None):
        """Wait as `synchronize` does, in a coroutine without blocking the event loop.

        `timeout` is in seconds.
        """
        from acl.execution._await import event_wait

        event_open(self)
        return event_wait(self, timeout)

    def elapsed_ms(self, Event end not None):
        """Return the milliseconds from this event to `end`.

        Their streams must have reached both events, and both must have `timing`.
        """
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
        cdef EventEnd end
        if self.raw is NULL or not self.owned or leaving or self.made != fork_count:
            return
        end = EventEnd.__new__(EventEnd)
        end.raw = self.raw
        end_soon(end)

    def __repr__(self):
        return "<Event closed>" if self.raw is NULL else f"<Event handle={<size_t> self.raw:#x}>"
