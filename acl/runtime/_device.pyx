"""Devices and contexts, and the start of ACL itself.

The first object that needs ACL starts it.  (If other code has called `aclInit` already, that is no
error.)  If the thread has no current device, the object makes device 0 current.  Each thread has
its own current context.  Only `reset` resets a device, because that ends the device's contexts for
the whole process.

ACL has no call that leaves a thread without a context.  If a `with` block, or a query of a device,
makes a context current in a thread that had none, that context is *lent*: afterwards, the thread
counts as a thread without a context.
"""

import atexit
import threading
import time

cimport cython

from cpython.exc cimport PyErr_CheckSignals

from acl.bind._error cimport check
from acl.core._ends cimport ends_noted
from acl.runtime._ended cimport ended_drop
from acl.runtime._later cimport (
    End, callback_enter as depth_enter, callback_leave as depth_leave, end_soon, in_callback,
    later_count, later_drain,
)
from acl.bind.generated._libacl cimport (
    ACL_ERROR_REPEAT_INITIALIZE,
    ACL_ERROR_RT_CONTEXT_NULL,
    ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
    ACL_DDR_MEM,
    ACL_HBM_MEM,
    ACL_RT_DEVICE_STATUS_NORMAL,
    aclError,
    aclFinalizeReference,
    aclInit,
    aclrtContext,
    aclrtCreateContext,
    aclrtDestroyContext,
    aclrtDeviceGetStreamPriorityRange,
    aclrtDeviceStatus,
    aclrtGetCurrentContext,
    aclrtGetDevice,
    aclrtGetDeviceCount,
    aclrtGetMemInfo,
    aclrtGetSocName,
    aclrtQueryDeviceStatus,
    aclrtResetDevice,
    aclrtResetDeviceForce,
    aclrtSetCurrentContext,
    aclrtSetDevice,
    aclrtSynchronizeDeviceWithTimeout,
    libacl_has,
    libacl_open,
)
from libc.stdint cimport int32_t, uint32_t, uint64_t
from posix.unistd cimport getpid

from acl.bind._error import DeviceLostError, error_for

__all__ = ["Context", "Device"]

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

cdef extern from *:
    """
    /* `readiness` when this thread was last known to have a current context; `readiness` changes
       whenever a context may have ended.  If other code resets a device, calls of ACL fail. */
    static _Thread_local int thread_ready;
    static void thread_is_ready(int value) { thread_ready = value; }
    /* The lent context, which counts as none, or NULL. */
    static _Thread_local void *thread_lent;
    static void thread_is_lent(void *context) { thread_lent = context; }
    """
    int thread_ready
    void thread_is_ready(int value) nogil
    void *thread_lent
    void thread_is_lent(void *context) nogil

cdef enum:
    SLICE_MS = 50              # longest call of ACL in a wait; between two calls, Ctrl-C is noticed

cdef int readiness = 1
# The default contexts of the devices that this process has made current, by ordinal.
cdef dict defaults = {}
# The number of open Questions of each device that nothing else uses, by ordinal.
cdef dict asked = {}
# In each thread: for each open `with` block, (object, previous context), the innermost block last.
cdef object blocks = threading.local()
# `_work` sets both: a function that lists the streams of a context, given by its handle, and one
# that ends the streams of such a list.  The list is made before the context is destroyed, because
# another thread's new context may get the handle at once.
context_streams = None
streams_end = None

cdef int first_process = getpid()
# 1 if this package has started ACL in this process; then `leave` gives the reference to ACL back.
cdef int started = 0
cdef int started_forks = 0


cdef void on_fork() noexcept nogil:
    global fork_count, readiness
    fork_count += 1
    readiness += 1


cdef void alive_add(int change) noexcept:
    global alive
    alive += change


cdef int forked_raise(object handle) except -1:
    raise RuntimeError(
        f"{type(handle).__name__} was made in process {first_process} before a fork and can't be "
        f"used in its child {getpid()}: a device belongs to the process that opened it; start "
        "workers with the 'spawn' method"
    )


cdef int fork_check() except -1:
    if started and started_forks != fork_count:
        raise RuntimeError(
            f"ACL was started in process {first_process} before a fork; its child {getpid()} "
            "can't use it: start workers with the 'spawn' method"
        )
    return 0


cdef int runtime_start() except -1:
    global started, started_forks
    cdef aclError status
    fork_check()
    if started:
        return 0
    with nogil:
        status = aclInit(NULL)
    if status != ACL_ERROR_REPEAT_INITIALIZE:
        check(status, "aclInit")
    started += 1
    started_forks = fork_count
    return 0


cdef int callback_check() except -1:
    if in_callback():
        raise RuntimeError("a callback on a stream must not call the device, wait or close: hand "
                           "that to another thread")
    return 0


cdef void callback_enter() noexcept nogil:
    thread_is_ready(0)                  # 0: the next `current_ensure` checks again
    depth_enter()


cdef void callback_leave() noexcept nogil:
    depth_leave()


cdef int later_work() except -1:
    ended_drop()
    return later_drain()


cdef int current_ensure(aclrtContext preferred) except -1:
    if thread_ready == readiness:
        return later_work() if later_count or ends_noted() else 0
    callback_check()
    runtime_start()
    if context_own() is NULL:
        if preferred is not NULL:
            context_set(preferred)
        else:
            device_set(0, False)
        thread_is_lent(NULL)
    thread_is_ready(readiness)
    return later_work() if later_count or ends_noted() else 0


cdef int current_device() except? -2:
    cdef int32_t ordinal = -1
    cdef aclError status
    with nogil:
        status = aclrtGetDevice(&ordinal)
    return ordinal if status == 0 else -1


cdef aclrtContext current_context() noexcept:
    cdef aclrtContext context = NULL
    cdef aclError status
    with nogil:
        status = aclrtGetCurrentContext(&context)
    return context if status == 0 else NULL


cdef aclrtContext context_own() noexcept:
    """Return the thread's context; NULL if it has none, or only a lent one."""
    cdef aclrtContext context = current_context()
    return NULL if context is thread_lent else context


cdef int context_set(aclrtContext context) except -1:
    cdef aclError status
    with nogil:
        status = aclrtSetCurrentContext(context)
    return check(status, "aclrtSetCurrentContext")


cdef int context_back(aclrtContext before) except -1:
    """Make `before` current again; if it is NULL or destroyed, the current context becomes lent."""
    cdef aclError status = ACL_ERROR_RT_CONTEXT_NULL
    if before is not NULL:
        with nogil:
            status = aclrtSetCurrentContext(before)
        if status != ACL_ERROR_RT_CONTEXT_NULL and status != ACL_ERROR_RT_PARAM_INVALID:
            return check(status, "aclrtSetCurrentContext")
    thread_is_lent(current_context())
    thread_is_ready(0)
    return 0


cdef int device_set(int ordinal, bint counts) except -1:
    """Make a device current; without `counts`, only its first use needs a `reset`."""
    # If Questions have begun to use the device, their use counts as this one: they do not undo it.
    cdef bint begun = asked.pop(ordinal, None) is not None
    return device_current_set(ordinal, counts and not begun)


cdef int device_current_set(int ordinal, bint counts) except -1:
    cdef aclError status
    cdef aclrtContext context = <aclrtContext> <size_t> defaults.get(ordinal, 0)
    thread_is_lent(NULL)
    if not counts and context is not NULL:
        with nogil:
            status = aclrtSetCurrentContext(context)
        if status == 0:
            return 0
        defaults.pop(ordinal, None)             # other code has reset the device
    with nogil:
        status = aclrtSetDevice(ordinal)
    check(status, "aclrtSetDevice")
    context = current_context()
    if context is not NULL:
        defaults[ordinal] = <size_t> context
    return 0


cdef int block_enter(object owner, aclrtContext before) except -1:
    if not hasattr(blocks, "open"):
        blocks.open = []
    blocks.open.append((owner, <size_t> before))
    return 0


cdef int block_leave(object owner) except -1:
    """End this thread's innermost `with` block of `owner`: restore the context from before it."""
    cdef list entered = getattr(blocks, "open", [])
    cdef Py_ssize_t i
    for i in reversed(range(len(entered))):
        if entered[i][0] is owner:
            return context_back(<aclrtContext> <size_t> entered.pop(i)[1])
    raise RuntimeError(f"a with block of {owner!r} must end in the thread that began it")


@cython.final
cdef class Question:
    """A `with` block that makes a device current for a query and needs no `reset` afterwards."""

    cdef int ordinal
    cdef bint opened  # true: only Questions used the device at `__enter__`; `asked` counts this one
    cdef size_t before

    def __cinit__(self, int ordinal):
        self.ordinal = ordinal

    def __enter__(self):
        callback_check()
        runtime_start()
        self.before = <size_t> context_own()
        self.opened = self.ordinal not in defaults or self.ordinal in asked
        device_current_set(self.ordinal, False)
        if self.opened:
            asked[self.ordinal] = asked.get(self.ordinal, 0) + 1

    def __exit__(self, *error):
        try:
            context_back(<aclrtContext> self.before)
        finally:
            self.end()

    cdef int end(self) except -1:
        """Undo the use of the device if this was the last Question and nothing else uses it."""
        cdef int left = asked.get(self.ordinal, 0)
        if not self.opened or left == 0:  # 0: `device_set` has taken over the use of the device
            return 0
        if left > 1:
            asked[self.ordinal] = left - 1
            return 0
        del asked[self.ordinal]
        defaults.pop(self.ordinal, None)
        with nogil:
            aclrtResetDevice(self.ordinal)
        return 0


def timeout_checked(timeout_ms):
    """Return `timeout_ms` in the form of the C API: -1 for None, else 1 to 2**31 - 1."""
    if timeout_ms is None:
        return -1
    if not isinstance(timeout_ms, int):
        raise TypeError(f"timeout_ms must be an int or None, not {type(timeout_ms).__name__}")
    if not 1 <= timeout_ms < 2**31:
        raise ValueError(f"timeout_ms must be None or 1 to {2**31 - 1}, not {timeout_ms}")
    return int(timeout_ms)


def ordinal_of(device, name="device"):
    """Return the number of a device, given as an int or a `Device`; errors name the argument."""
    if isinstance(device, Device):
        return (<Device> device).ordinal
    if not isinstance(device, int):
        raise TypeError(f"{name} must be an int or a Device, not {type(device).__name__}")
    if not 0 <= device < 2**31:
        raise ValueError(f"{name} must be 0 or more, and below 2**31, not {device}")
    return int(device)


@cython.final
cdef class Device:
    """One device, identified by its number in this process.

    The constructor does not call the device.  `use` makes the device current in the calling thread.
    A `with` block makes it current until the block ends; then the device from before the block is
    current again.

    Parameters
    ----------
    ordinal : int
        From 0 to ``Device.count() - 1``.
    """

    def __init__(self, ordinal=0):
        self.ordinal = ordinal_of(ordinal, "ordinal")

    @staticmethod
    def count():
        """Return the number of devices that this process can use."""
        cdef uint32_t count = 0
        cdef aclError status
        fork_check()
        with nogil:
            status = aclrtGetDeviceCount(&count)
        check(status, "aclrtGetDeviceCount")
        return count

    @staticmethod
    def current():
        """Return the device that is current in this thread, or None."""
        if not libacl_open() or context_own() is NULL:
            return None
        cdef int ordinal = current_device()
        return None if ordinal < 0 else Device(ordinal)

    def use(self):
        """Make the device current in this thread, and return it."""
        callback_check()
        runtime_start()
        device_set(self.ordinal, True)
        thread_is_lent(NULL)
        return self

    def __enter__(self):
        callback_check()
        runtime_start()
        cdef aclrtContext before = context_own()
        device_set(self.ordinal, False)
        thread_is_lent(NULL)
        block_enter(self, before)
        return self

    def __exit__(self, *error):
        block_leave(self)

    @property
    def name(self):
        """The chip's name, such as ``"Ascend910B1"``."""
        runtime_start()
        cdef const char *name
        with nogil:
            name = aclrtGetSocName()
        return "" if name is NULL else name.decode(errors="replace")

    def memory_info(self):
        """Return the free and the total bytes of the device's memory, as a pair."""
        cdef size_t free = 0
        cdef size_t total = 0
        cdef aclError status
        with Question(self.ordinal):
            with nogil:
                status = aclrtGetMemInfo(ACL_HBM_MEM, &free, &total)
                if status == 0 and total == 0:          # the chip has no HBM, but DDR memory
                    status = aclrtGetMemInfo(ACL_DDR_MEM, &free, &total)
            check(status, "aclrtGetMemInfo")
        return free, total

    def healthy(self):
        """Return True if the device answers and its state is normal; made for readiness probes.

        The call allocates no memory, waits for no work, and does not change the current device.
        """
        cdef aclrtDeviceStatus state
        cdef aclError status
        runtime_start()
        with nogil:
            status = aclrtQueryDeviceStatus(self.ordinal, &state)
        if is_lost(status):
            return False
        check(status, "aclrtQueryDeviceStatus")
        return state == ACL_RT_DEVICE_STATUS_NORMAL

    def stream_priorities(self):
        """Return the least and the greatest stream priority, as a pair; lower numbers run first."""
        cdef int32_t least = 0
        cdef int32_t greatest = 0
        cdef aclError status
        with Question(self.ordinal):
            with nogil:
                status = aclrtDeviceGetStreamPriorityRange(&least, &greatest)
            check(status, "aclrtDeviceGetStreamPriorityRange")
        return least, greatest

    def synchronize(self, timeout_ms=None):
        """Wait for all work of the device's default context.

        Raises `acl.TimeoutError` when `timeout_ms` runs out; the work continues.
        """
        cdef int32_t limit = timeout_checked(timeout_ms)
        with Question(self.ordinal):
            device_wait(limit)
        later_drain()

    def reset(self, *, force=False):
        """Reset the device, which destroys its default context and streams for the whole process.

        ACL resets the device when `reset` was called as often as `use`; with `force`, at once.
        """
        global readiness
        cdef int32_t ordinal = self.ordinal
        cdef aclError status
        callback_check()
        runtime_start()
        readiness += 1
        context = defaults.get(ordinal)
        streams = streams_of(context)
        if force:
            with nogil:
                status = aclrtResetDeviceForce(ordinal)
            check(status, "aclrtResetDeviceForce")
        else:
            with nogil:
                status = aclrtResetDevice(ordinal)
            check(status, "aclrtResetDevice")
        if defaults.get(ordinal) == context:    # else another thread has used the device again
            defaults.pop(ordinal, None)
        reset_tell(ordinal, context, streams)

    def __eq__(self, other):
        return isinstance(other, Device) and self.ordinal == (<Device> other).ordinal

    def __hash__(self):
        return hash((Device, self.ordinal))

    def __repr__(self):
        return f"Device({self.ordinal})"

    def __reduce__(self):
        return Device, (self.ordinal,)


cdef bint is_lost(aclError status):
    return isinstance(error_for(status, "", ""), DeviceLostError)


cdef int device_wait(int32_t limit_ms) except -1:
    """Wait for all work of the current context, for at most `limit_ms` (-1: no limit).

    The context's streams are waited for one by one first, so that each stream stores its errors.
    Raise the first error that no call has raised yet.
    """
    from acl.runtime._work import context_told, context_wait

    cdef aclError status
    cdef int32_t slice_ms = SLICE_MS
    cdef size_t context = <size_t> current_context()
    end = None if limit_ms < 0 else time.monotonic() + limit_ms / 1000
    context_wait(context, limit_ms)
    while True:
        if end is not None:
            left = int((end - time.monotonic()) * 1000)
            slice_ms = min(max(left, 1), SLICE_MS)
        with nogil:
            status = aclrtSynchronizeDeviceWithTimeout(slice_ms)
        if status != ACL_ERROR_RT_STREAM_SYNC_TIMEOUT or (end is not None and left <= slice_ms):
            break
        PyErr_CheckSignals()
    if status == ACL_ERROR_RT_STREAM_SYNC_TIMEOUT:
        check(status, "aclrtSynchronizeDeviceWithTimeout")   # a later wait raises the works' errors
    error = context_told(context)
    check(status, "aclrtSynchronizeDeviceWithTimeout")
    if error is not None:
        raise error
    return 0


cdef int reset_tell(int32_t ordinal, object context, list streams) except -1:
    """After a reset: if it destroyed the device's default context, end the context's streams."""
    cdef aclError status
    cdef aclrtContext before = context_own()
    cdef aclrtContext looked = <aclrtContext> <size_t> (context or 0)
    if looked is NULL:
        return 0
    with nogil:
        status = aclrtSetCurrentContext(looked)
    if status != 0:
        return streams_tell(streams)
    defaults[ordinal] = context         # the device was not reset: `use` was called more often
    return context_back(before)


cdef list streams_of(object context):
    """Return the streams of a context, given by its handle or None, for `streams_tell`."""
    return [] if context is None or context_streams is None else context_streams(context)


cdef int streams_tell(list streams) except -1:
    if streams:
        streams_end(streams)
    return 0


cdef aclError context_destroy(aclrtContext context) except? -1:
    """Destroy a context and mark its streams as ended; return ACL's status.

    If ACL refuses, the context and its streams stay usable.
    """
    global readiness
    cdef aclError status
    cdef list streams = streams_of(<size_t> context)
    readiness += 1
    with nogil:
        status = aclrtDestroyContext(context)
    if status == 0 or status == ACL_ERROR_RT_CONTEXT_NULL:
        streams_tell(streams)
    return status


@cython.final
cdef class ContextEnd(End):
    """The destruction of a context whose Python object was deleted."""

    cdef aclrtContext raw

    cdef int finish(self) except -1:
        alive_add(-1)
        context_destroy(self.raw)               # status ignored: no caller waits for a deletion
        return 0


@cython.final
cdef class Context:
    """A context on a device, beside the default one, with its own streams and events.

    A new context becomes current in the calling thread.  Most programs need none, because each
    device has a default context.

    Parameters
    ----------
    device : Device or int, optional
        The context's device.  Default: the thread's current device, or 0 if it has none.
    """

    def __init__(self, device=None):
        cdef aclError status
        cdef int32_t ordinal = -1
        if self.raw is not NULL:
            raise ValueError(f"{self!r} exists already")
        if device is None:
            current_ensure(NULL)
            with nogil:
                status = aclrtGetDevice(&ordinal)
            check(status, "aclrtGetDevice")
        else:
            runtime_start()
            ordinal = ordinal_of(device)
        with nogil:
            status = aclrtCreateContext(&self.raw, ordinal)
        if status != 0:
            self.raw = NULL
        check(status, "aclrtCreateContext")
        self.owned = True
        self.made = fork_count
        alive_add(1)
        self.device = ordinal
        thread_is_lent(NULL)

    @staticmethod
    def current():
        """Return the thread's current context, which `close` will not destroy.

        Return None if the thread has no current context.
        """
        cdef aclrtContext handle = context_own() if libacl_open() else NULL
        if handle is NULL:
            return None
        cdef Context context = Context.__new__(Context)
        context.raw = handle
        context.made = fork_count
        context.device = current_device()
        return context

    @property
    def handle(self):
        """The `aclrtContext` as an integer."""
        context_open(self)
        return <size_t> self.raw

    @property
    def closed(self):
        """True once `close` has run."""
        return self.raw is NULL

    def use(self):
        """Make the context current in this thread, and return it."""
        cdef aclError status
        context_open(self)
        with nogil:
            status = aclrtSetCurrentContext(self.raw)
        check(status, "aclrtSetCurrentContext")
        thread_is_lent(NULL)
        return self

    def __enter__(self):
        cdef aclrtContext before = context_own()
        self.use()
        block_enter(self, before)
        return self

    def __exit__(self, *error):
        block_leave(self)

    def close(self):
        """Destroy the context; a second call does nothing."""
        if self.raw is NULL:
            return
        if self.made != fork_count:
            forked_raise(self)
        callback_check()
        cdef aclrtContext handle = self.raw
        self.raw = NULL
        if self.owned:
            alive_add(-1)
            check(context_destroy(handle), "aclrtDestroyContext")

    def __dealloc__(self):
        cdef ContextEnd end
        if self.raw is NULL or not self.owned or leaving or self.made != fork_count:
            return
        end = ContextEnd.__new__(ContextEnd)
        end.raw = self.raw
        end_soon(end)

    def __eq__(self, other):
        return isinstance(other, Context) and self.raw is (<Context> other).raw

    def __hash__(self):
        return hash((Context, <size_t> self.raw))

    def __repr__(self):
        state = "closed" if self.raw is NULL else f"handle={<size_t> self.raw:#x}"
        return f"<Context {state}>"


cdef int context_open(Context context) except -1:
    """Raise an error for a context that is closed or was made by a parent process."""
    if context.raw is NULL:
        raise ValueError("the Context is closed")
    if context.made != fork_count:
        forked_raise(context)
    return 0


def leave():
    """At interpreter exit: stop freeing anything, and give this package's reference to ACL back.

    `aclFinalize` is not called, because other code in the process may still need ACL.  The
    reference is kept while a handle of this package is open: the last reference ends ACL, and that
    end would wait for the handle.
    """
    global leaving
    cdef uint64_t count = 0
    leaving = True
    if alive != 0 or not started or started_forks != fork_count:
        return
    if libacl_has("aclFinalizeReference"):
        with nogil:
            aclFinalizeReference(&count)


pthread_atfork(NULL, NULL, on_fork)
atexit.register(leave)
