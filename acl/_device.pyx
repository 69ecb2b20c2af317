"""Devices and contexts: which one a thread works on, and the start of ACL itself.

The first object that needs ACL starts it (`aclInit`; a second start is success) and, in a thread
without a current device, makes device 0 current.  A context belongs to the thread that uses it:
each thread picks its own.  Nothing here frees a device behind the user's back: `reset` is explicit,
as any reset takes the device away from everybody in the process.
"""

import atexit

cimport cython

from acl._error cimport check
from acl._libacl cimport (
    ACL_ERROR_REPEAT_INITIALIZE,
    ACL_DDR_MEM,
    ACL_HBM_MEM,
    aclError,
    aclFinalizeReference,
    aclInit,
    aclrtContext,
    aclrtCreateContext,
    aclrtDestroyContext,
    aclrtDeviceGetStreamPriorityRange,
    aclrtGetCurrentContext,
    aclrtGetDevice,
    aclrtGetDeviceCount,
    aclrtGetMemInfo,
    aclrtGetSocName,
    aclrtResetDevice,
    aclrtResetDeviceForce,
    aclrtSetCurrentContext,
    aclrtSetDevice,
    aclrtSynchronizeDevice,
    aclrtSynchronizeDeviceWithTimeout,
    libacl_has,
    libacl_open,
)
from libc.stdint cimport int32_t, uint32_t, uint64_t
from posix.unistd cimport getpid

__all__ = ["Context", "Device"]

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

cdef extern from *:
    """
    /* Whether this thread was seen to have a current context: fork_count + 1 then, so that a child
       starts anew.  A reset elsewhere may take the context away; the runtime says so. */
    static _Thread_local int thread_ready;
    static void thread_is_ready(int value) { thread_ready = value; }
    """
    int thread_ready
    void thread_is_ready(int value) nogil

cdef int first_process = getpid()
# How often we started ACL in this process: so often we count down at exit.
cdef int started = 0
cdef int started_forks = 0


cdef void on_fork() noexcept nogil:
    global fork_count
    fork_count += 1


cdef void alive_add(int change) noexcept:
    global alive
    alive += change


cdef int forked_raise(object handle) except -1:
    raise RuntimeError(
        f"{type(handle).__name__} was made in process {first_process} before a fork and can't be "
        f"used in its child {getpid()}: a device belongs to the process that opened it; start "
        "workers with the 'spawn' method"
    )


cdef int runtime_start() except -1:
    global started, started_forks
    cdef aclError status
    if started:
        if started_forks != fork_count:
            raise RuntimeError(
                f"ACL was started in process {first_process} before a fork; its child {getpid()} "
                "can't use it: start workers with the 'spawn' method"
            )
        return 0
    with nogil:
        status = aclInit(NULL)
    if status != ACL_ERROR_REPEAT_INITIALIZE:
        check(status, "aclInit")
    started += 1
    started_forks = fork_count
    return 0


cdef int current_ensure(aclrtContext preferred) except -1:
    cdef aclrtContext context = NULL
    cdef aclError status
    if thread_ready == fork_count + 1:
        return 0
    runtime_start()
    with nogil:
        status = aclrtGetCurrentContext(&context)
        if status == 0 and context is not NULL:
            preferred = NULL
        elif preferred is not NULL:
            status = aclrtSetCurrentContext(preferred)
        else:
            status = aclrtSetDevice(0)
    check(status, "aclrtSetDevice" if preferred is NULL else "aclrtSetCurrentContext")
    thread_is_ready(fork_count + 1)
    return 0


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


cdef int context_restore(list previous) except -1:
    """Go back to the context that the innermost `with` block left."""
    cdef aclrtContext context = <aclrtContext> <size_t> previous.pop()
    cdef aclError status
    if context is NULL:
        return 0
    with nogil:
        status = aclrtSetCurrentContext(context)
    return check(status, "aclrtSetCurrentContext")


def timeout_checked(timeout_ms):
    """`timeout_ms` as the C API wants it: -1 for None, else 1 to 2**31 - 1."""
    if timeout_ms is None:
        return -1
    if not isinstance(timeout_ms, int):
        raise TypeError(f"timeout_ms must be an int or None, not {type(timeout_ms).__name__}")
    if not 1 <= timeout_ms < 2**31:
        raise ValueError(f"timeout_ms must be None or 1 to {2**31 - 1}, not {timeout_ms}")
    return int(timeout_ms)


def ordinal_of(device, name="device"):
    """The number of a device, given as one or as a `Device`; a TypeError or ValueError names it."""
    if isinstance(device, Device):
        return (<Device> device).ordinal
    if not isinstance(device, int):
        raise TypeError(f"{name} must be an int or a Device, not {type(device).__name__}")
    if not 0 <= device < 2**31:
        raise ValueError(f"{name} must be 0 or more, and below 2**31, not {device}")
    return int(device)


@cython.final
cdef class Device:
    """One device, by its number in this process.

    Making the object touches nothing; `use` makes the device current in the calling thread.  In a
    `with` block it is current until the block ends, then what was current before is again.

    Parameters
    ----------
    ordinal : int
        From 0 to ``Device.count() - 1``.
    """

    def __init__(self, ordinal=0):
        self.ordinal = ordinal_of(ordinal, "ordinal")
        self.previous = []

    @staticmethod
    def count():
        """How many devices this process can use."""
        cdef uint32_t count = 0
        cdef aclError status
        with nogil:
            status = aclrtGetDeviceCount(&count)
        check(status, "aclrtGetDeviceCount")
        return count

    @staticmethod
    def current():
        """The device that is current in this thread, or None."""
        cdef int ordinal = current_device() if libacl_open() else -1
        return None if ordinal < 0 else Device(ordinal)

    def use(self):
        """Make the device current in this thread; returns the device."""
        cdef aclError status
        cdef int32_t ordinal = self.ordinal
        runtime_start()
        with nogil:
            status = aclrtSetDevice(ordinal)
        check(status, "aclrtSetDevice")
        return self

    def __enter__(self):
        runtime_start()
        cdef size_t before = <size_t> current_context()
        self.use()
        self.previous.append(before)
        return self

    def __exit__(self, *error):
        context_restore(self.previous)

    @property
    def name(self):
        """The chip's name, such as ``"Ascend910B1"``."""
        runtime_start()
        cdef const char *name
        with nogil:
            name = aclrtGetSocName()
        return "" if name is NULL else name.decode(errors="replace")

    def memory_info(self):
        """Free and total bytes of the device's memory, as a pair."""
        cdef size_t free = 0
        cdef size_t total = 0
        cdef aclError status
        with self:
            with nogil:
                status = aclrtGetMemInfo(ACL_HBM_MEM, &free, &total)
                if status == 0 and total == 0:          # a chip with DDR memory
                    status = aclrtGetMemInfo(ACL_DDR_MEM, &free, &total)
            check(status, "aclrtGetMemInfo")
        return free, total

    def stream_priorities(self):
        """The least and the greatest stream priority, as a pair; a lower number goes first."""
        cdef int32_t least = 0
        cdef int32_t greatest = 0
        cdef aclError status
        with self:
            with nogil:
                status = aclrtDeviceGetStreamPriorityRange(&least, &greatest)
            check(status, "aclrtDeviceGetStreamPriorityRange")
        return least, greatest

    def synchronize(self, timeout_ms=None):
        """Wait for all work of the current context on this device.

        Raises `acl.TimeoutError` when `timeout_ms` runs out; the work goes on.
        """
        cdef int32_t limit = timeout_checked(timeout_ms)
        cdef aclError status
        with self:
            if limit < 0:
                with nogil:
                    status = aclrtSynchronizeDevice()
                check(status, "aclrtSynchronizeDevice")
            else:
                with nogil:
                    status = aclrtSynchronizeDeviceWithTimeout(limit)
                check(status, "aclrtSynchronizeDeviceWithTimeout")

    def reset(self, *, force=False):
        """Give the device up: its default context and streams are gone for the whole process.

        Each `use` counts; the last reset acts, unless `force` makes this one act at once.
        """
        cdef int32_t ordinal = self.ordinal
        cdef aclError status
        runtime_start()
        thread_is_ready(0)
        if force:
            with nogil:
                status = aclrtResetDeviceForce(ordinal)
            check(status, "aclrtResetDeviceForce")
        else:
            with nogil:
                status = aclrtResetDevice(ordinal)
            check(status, "aclrtResetDevice")

    def __eq__(self, other):
        return isinstance(other, Device) and self.ordinal == (<Device> other).ordinal

    def __hash__(self):
        return hash((Device, self.ordinal))

    def __repr__(self):
        return f"Device({self.ordinal})"

    def __reduce__(self):
        return Device, (self.ordinal,)


@cython.final
cdef class Context:
    """A context of its own on a device: streams and events made in it are its own.

    Making one makes it current in the calling thread.  Most programs need none: each device has a
    default context.

    Parameters
    ----------
    device : Device or int, optional
        Where; the thread's current device, or 0, if not given.
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
        self.previous = []

    @staticmethod
    def current():
        """The thread's current context, borrowed; None if it has none."""
        cdef aclrtContext handle = current_context() if libacl_open() else NULL
        if handle is NULL:
            return None
        cdef Context context = Context.__new__(Context)
        context.raw = handle
        context.made = fork_count
        context.device = -1
        context.previous = []
        return context

    @property
    def handle(self):
        """The `aclrtContext` as an integer."""
        context_open(self)
        return <size_t> self.raw

    @property
    def closed(self):
        """Whether `close` has run."""
        return self.raw is NULL

    def use(self):
        """Make the context current in this thread; returns the context."""
        cdef aclError status
        context_open(self)
        with nogil:
            status = aclrtSetCurrentContext(self.raw)
        check(status, "aclrtSetCurrentContext")
        return self

    def __enter__(self):
        cdef size_t before = <size_t> current_context()
        self.use()
        self.previous.append(0 if before == <size_t> self.raw else before)
        return self

    def __exit__(self, *error):
        context_restore(self.previous)

    def close(self):
        """Destroy the context; a second call does nothing."""
        cdef aclError status
        if self.raw is NULL:
            return
        if self.made != fork_count:
            forked_raise(self)
        cdef aclrtContext handle = self.raw
        self.raw = NULL
        if self.owned:
            alive_add(-1)
            with nogil:
                status = aclrtDestroyContext(handle)
            check(status, "aclrtDestroyContext")

    def __dealloc__(self):
        if self.raw is NULL or not self.owned or leaving or self.made != fork_count:
            return
        alive_add(-1)
        with nogil:
            aclrtDestroyContext(self.raw)

    def __eq__(self, other):
        return isinstance(other, Context) and self.raw is (<Context> other).raw

    def __hash__(self):
        return hash((Context, <size_t> self.raw))

    def __repr__(self):
        state = "closed" if self.raw is NULL else f"handle={<size_t> self.raw:#x}"
        return f"<Context {state}>"


cdef int context_open(Context context) except -1:
    """Raises for a context that is closed or a parent process's."""
    if context.raw is NULL:
        raise ValueError("the Context is closed")
    if context.made != fork_count:
        forked_raise(context)
    return 0


def leave():
    """At interpreter exit: nothing is released any more, and our start of ACL is counted down.

    Others in the process may still need ACL, so it is only ever counted down; and not even that
    while a handle of ours is alive, as the end of ACL would wait for its work.
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
