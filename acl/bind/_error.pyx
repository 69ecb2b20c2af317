"""Turns status codes of the ACL C API into exceptions. No other file does.

Code that is called from Python writes `check(aclrtX(...), "aclrtX")`. The allocator and the
callbacks of C code pass status codes on instead. There is a subclass for each error that callers
treat differently. The runtime's message is fetched immediately, because it belongs to the last call
of the thread. Nothing here opens the library.
"""

import builtins

from acl.bind.generated._libacl cimport (
    aclError,
    aclGetRecentErrMsg,
    libacl_code_name,
    libacl_failure,
    libacl_has,
    libacl_missing,
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
)

from acl.bind.generated import _libacl

cdef extern from "<sys/resource.h>" nogil:
    ctypedef unsigned long rlim_t
    struct rlimit:
        rlim_t rlim_cur
    int RLIMIT_AS
    rlim_t RLIM_INFINITY
    int getrlimit(int resource, rlimit *limits)

__all__ = [
    "AclError",
    "DeviceLostError",
    "InvalidArgumentError",
    "NotSupportedError",
    "OutOfMemoryError",
    "TimeoutError",
    "error_for",
    "error_name",
]

# Advice for the user, by error code.
HINTS = {
    100001: "aclInit has not run: make any Device, Stream or Buffer, or call acl.init()",
    100037: "aclFinalize has run already; a process can't start ACL again",
    107001: "acl.Device.count() says how many devices there are",
    107002: "no device is current in this thread: call acl.Device(n).use() in it first",
    107003: "the stream belongs to another context than the thread's current one; "
            "acl.Device(n).use() makes its device's current",
    107011: "the stream's callbacks are already bound to a thread; host functions can't join them",
    107017: "the handle was destroyed, or is of another kind",
    107019: "the wait ran out",
    107022: "the device's tasks were aborted; reset the device before using it again",
    107027: "the stream is being captured: end the capture first",
    107028: "the event belongs to a capture",
    107030: "synchronous calls are refused during a capture, unless its mode is relaxed",
    207001: "no room, on the device or under a pool's limit: free what is live, trim what is idle",
    207005: "a device resource (streams, events, notifies) is used up: close what is idle",
    207007: "events are used up: close what is idle",
    207008: "streams are used up: close what is idle",
    507046: "the stream is still busy, or a callback on it waits for this thread",
    507047: "the event was not reached in time",
    507010: "the device is lost: reset it, or end the process",
    507899: "the device is lost: reset it, or end the process",
    507053: "a device memory error: the work since the last synchronize is lost",
}


class AclError(RuntimeError):
    """A call of the ACL C API failed.

    Attributes
    ----------
    code : int
        What the function returned.
    name : str
        The code's name in the headers, such as ``"ACL_ERROR_RT_MEMORY_ALLOCATION"``; ``"unknown"``
        for a number without one.
    function : str
        The C function that failed.
    message : str
        The runtime's own messages (``aclGetRecentErrMsg``), the newest first; empty if it had none.
        The exception's text shows the newest.
    hint : str
        What to do about the error; empty if nothing is known.
    """

    def __init__(self, code, function, message=""):
        self.code = code
        self.name = error_name(code)
        self.function = function
        self.message = message
        self.hint = HINTS.get(code, "")
        text = f"{function} failed with {self.name} ({code})"
        if message:
            # The runtime puts a new message in front of the older ones.
            newest, _, _ = message.partition("\n[PID")
            text += f": {newest}"
        if self.hint:
            text += f" [hint: {self.hint}]"
        super().__init__(text)

    def __reduce__(self):
        return type(self), (self.code, self.function, self.message)


class OutOfMemoryError(AclError, MemoryError):
    """The device, or a pool's limit, has no room for the request.

    Attributes
    ----------
    report : OomReport or None
        The pool's report: what was requested, what holds the memory, what would help; None if no
        pool has made one.  From Python 3.11 on, its details are a note of the exception.
    """

    def __init__(self, code, function, message="", report=None):
        super().__init__(code, function, message)
        self.report = report
        if report is not None and hasattr(self, "add_note"):
            self.add_note(report.details())

    def __reduce__(self):
        return type(self), (self.code, self.function, self.message, self.report)


class NotSupportedError(AclError):
    """The library, the driver or the chip does not have this function or feature."""


class InvalidArgumentError(AclError, ValueError):
    """The runtime refused an argument or a handle."""


class DeviceLostError(AclError):
    """The device does not answer any more, and its memory is lost.

    The process has to reset the device, or to end; waiting and retrying do not help.
    """


class TimeoutError(AclError, builtins.TimeoutError):
    """The timeout of a wait expired. The awaited work continues."""


CLASSES = {
    **dict.fromkeys((200000, 207001, 207018, 245000, 300000), OutOfMemoryError),
    **dict.fromkeys(
        (200001, 200006, 200007, 207000, 207019, 207021, 148050, 148052, 507009), NotSupportedError
    ),
    **dict.fromkeys(
        (100000, 100011, 107000, 107001, 107003, 107008, 107016, 107017, 107018, 145000, 200002,
         200003, 200004, 200005),
        InvalidArgumentError,
    ),
    **dict.fromkeys((507010, 507899), DeviceLostError),
    **dict.fromkeys((100036, 107019, 207020, 507012, 507046, 507047), TimeoutError),
}


def error_name(code):
    """Return the name of an error code in CANN's headers, or ``"unknown"``."""
    cdef const char *name = libacl_code_name(code)
    return "unknown" if name is NULL else name.decode()


def error_for(code, function, message=None):
    """Return the exception for a code, without raising it.

    If `message` is not given, the exception has the runtime's message for this thread.
    """
    if message is None:
        message = recent_message()
    return CLASSES.get(code, AclError)(code, function, message)


cdef str recent_message():
    """Return the runtime's message for this thread; empty if there is none, or no open library."""
    if libacl_failure() is not NULL or not libacl_has("aclGetRecentErrMsg"):
        return ""
    cdef const char *text = aclGetRecentErrMsg()
    return "" if text is NULL else text.decode(errors="replace").strip()


cdef str absence(bytes function):
    """Return the text why a function is not available."""
    cdef const char *failure = libacl_failure()
    if failure is not NULL:
        places = failure.decode(errors="replace").replace("\n", "; ")
        return f"no ACL library could be opened: {places}"
    version = _libacl.cann_version()
    found = f"CANN {version}" if version else "the CANN library"
    return f"{found} ({_libacl.library()}) has no function {function.decode()}"


cdef int raise_acl(aclError code, const char *function) except -1 with gil:
    cdef const char *missing = libacl_missing()
    if missing is not NULL and <bytes> missing == <bytes> function:
        raise NotSupportedError(code, function.decode(), absence(missing))
    raise error_for(code, function.decode())


cdef int made_check(const void *made, const char *function) except -1:
    if made is not NULL:
        return 0
    if not libacl_has(function):
        raise NotSupportedError(
            ACL_ERROR_RT_FEATURE_NOT_SUPPORT, function.decode(), absence(function))
    raise host_memory_error(f"what {function.decode()} makes")


cdef object host_memory_error(str what):
    return MemoryError(f"host memory for {what}{addresses_text()}")


cdef str addresses_text():
    cdef rlimit addresses
    if getrlimit(RLIMIT_AS, &addresses) != 0 or addresses.rlim_cur == RLIM_INFINITY:
        return ""
    return f"; this process may have {addresses.rlim_cur} bytes of addresses (ulimit -v)"
