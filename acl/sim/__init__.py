"""Control the host simulator: devices, chips, capacity, faults, counters.

The simulator is a `libascendcl.so` beside this file.  The `ACL_SIM_*` variables configure it for any
program; the functions here act on the library in this process (and load it if it is not loaded yet).
Every setting applies to the whole process.

Importing this module neither imports NumPy nor loads the library.  Any thread may call any function;
call `configure` while no device is in use.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = [
    "Fault",
    "configuration",
    "configure",
    "counters",
    "declare_kernel",
    "device_lost",
    "fail_stream",
    "fault",
    "functions",
    "lend_stack",
    "library_dir",
    "live_handles",
    "loaded",
    "operators",
    "parse_sizes",
    "physical_bytes",
    "physical_peak",
    "races",
    "races_muted",
    "reset",
    "reset_counters",
    "reset_physical_peak",
    "socs",
    "trace",
]

_library: ctypes.CDLL | None = None

#: Operators of ONNX that the node loop runs itself, without a kernel.
_CONTROL = ("ConcatFromSequence", "If", "Loop", "Scan", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
            "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence")

#: The ACL_SIM_* variable of each keyword of `configure`.
_SETTINGS = {
    "devices": "ACL_SIM_DEVICES",
    "capacity": "ACL_SIM_MEMORY",
    "pinned": "ACL_SIM_PINNED",
    "soc": "ACL_SIM_SOC",
    "cann": "ACL_SIM_VERSION",
    "strict": "ACL_SIM_STRICT",
    "strict_allocators": "ACL_SIM_STRICT_ALLOCATORS",
    "allocators": "ACL_SIM_ALLOCATORS",
    "reuse_handles": "ACL_SIM_REUSE_HANDLES",
    "device_code": "ACL_SIM_DEVICE_CODE",
    "latency": "ACL_SIM_LATENCY",
}


def library_dir() -> str:
    """Return the folder with `libascendcl.so` and the libraries that programs expect beside it.

    Returns
    -------
    str
        Put it on a linker's or a loader's path (`-L`, `LD_LIBRARY_PATH`).
    """
    return str(Path(__file__).resolve().parent / "lib")


def loaded() -> bool:
    """Return whether this process has loaded the simulator; the call does not load it."""
    try:
        ctypes.CDLL(library_dir() + "/libascendcl.so", os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _sim() -> ctypes.CDLL:
    """Return the library; open it at the first call.  `acl` opens the same file, so both use one library."""
    global _library
    if _library is None:
        opened = ctypes.CDLL(library_dir() + "/libascendcl.so")
        for name, result in (
            ("function", ctypes.c_char_p), ("kind", ctypes.c_char_p), ("calls", ctypes.c_uint64),
            ("live", ctypes.c_size_t), ("get", ctypes.c_size_t), ("fault_hits", ctypes.c_uint64),
            ("physical_bytes", ctypes.c_size_t), ("physical_peak", ctypes.c_size_t), ("soc", ctypes.c_char_p),
            ("message", ctypes.c_char_p), ("races", ctypes.c_uint64), ("race", ctypes.c_char_p),
        ):
            getattr(opened, f"acl_sim_{name}").restype = result
        for name in ("function", "kind", "calls", "live", "soc", "race"):
            getattr(opened, f"acl_sim_{name}").argtypes = [ctypes.c_size_t]
        _library = opened
    return _library


def _check(status: int) -> None:
    """Raise ValueError with the library's newest message unless the status is success."""
    if status != 0:
        text: bytes = _sim().acl_sim_message() or b""
        newest = text.decode(errors="replace").splitlines()[:1]
        what = newest[0].partition(f"failed with {status}: ")[2] if newest else ""
        raise ValueError(what or f"the simulator refused with {status}")


def _variable(name: str) -> str:
    """Return the variable that a keyword of `configure` sets; TypeError if there is no such keyword."""
    found = _SETTINGS.get(name)
    if found is None:
        raise TypeError(f"there is no setting {name!r}; there are {', '.join(_SETTINGS)}")
    return found


def _encode(name: str, value: object) -> bytes:
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if name in ("capacity", "pinned") and value != "unlimited":
        return parse_sizes(value, name).encode()
    return str(value).encode()


def parse_sizes(value: object, name: str = "capacity") -> str:
    """Convert sizes of memory to the form that the library reads.

    Parameters
    ----------
    value : int, str or sequence of these
        Bytes, or a text with a unit: `8 * 2**30`, `"8GiB"`, `"512M"`, `"8G,4G"`, `["8G", 4 * 2**30]`.
        Units are those of a pool's options: K and KiB are 1024 bytes, KB is 1000.  The last size also
        applies to all devices after it.
    name : str, optional
        The name of the value in error messages.

    Returns
    -------
    str
        The sizes in bytes, separated by commas.

    Raises
    ------
    ValueError
        If a text is not a size, or a size is not positive.
    """
    from acl.pool._options import bytes_of

    if isinstance(value, str):
        parts: Sequence[Any] = value.split(",")
    elif isinstance(value, Sequence):
        parts = value
    else:
        parts = [value]
    found = []
    for part in parts:
        size = bytes_of(part, name)
        if size == 0:
            raise ValueError(f"{name} must be at least 1 byte, not {part!r}")
        found.append(str(size))
    if not found:
        raise ValueError(f"{name} is empty, expected at least one size")
    return ",".join(found)


def configure(**settings: object) -> None:
    """Configure the simulated devices.

    Parameters
    ----------
    devices : int
        The number of devices: 0 to 64 (default 2).
    capacity : int, str or sequence
        Memory of each device, as `parse_sizes` takes it (default 32 GiB each).
    pinned : int or str
        The most pinned host memory of the process (default "unlimited").
    soc : str
        The chip: one of `socs()`, or another chip of their families (default Ascend910B1).
    cann : str
        The version of CANN to report, such as "8.5.0".
    strict : bool
        Whether device memory is inaccessible for the host outside copies.
    strict_allocators : bool
        Whether the registration of an allocator is refused if its advise function was not set, or if its stream was
        destroyed.
    allocators : bool
        Whether aclrtAllocatorRegister works (if the chip supports it).
    reuse_handles : bool
        Whether a new object gets the handle of the object of its kind that was destroyed last.
    device_code : str
        What a launch does if the host cannot run the code: "refuse" (it fails) or "skip" (it succeeds, and
        nothing is run).
    latency : str
        How long driver calls take: "off", "memory" (only calls that manage memory are slow), or "pcie".  "pcie"
        also slows copies between host and device to 24 GB/s, "pcie:RATE" to RATE bytes a second, such as
        "pcie:12GB".  It can be changed at any time.

    Raises
    ------
    TypeError
        If there is no setting of that name.
    ValueError
        If a value is invalid, or a device is in use.  Keywords before the refused one have taken effect.
    """
    for name, value in settings.items():
        _check(_sim().acl_sim_set(_variable(name).encode(), _encode(name, value)))


def configuration() -> dict[str, str]:
    """Return the settings in effect, as texts.

    Returns
    -------
    dict
        From each keyword of `configure` to the text of its value, in the form that the library reads.
    """
    buffer = ctypes.create_string_buffer(4096)
    found = {}
    for name, variable in _SETTINGS.items():
        if _sim().acl_sim_get(variable.encode(), buffer, len(buffer)):
            found[name] = buffer.value.decode()
    return found


def socs() -> list[str]:
    """Return the names of the simulated chips, the default one first."""
    return _names("soc")


def operators() -> dict[str, list[str]]:
    """Return the names of the operators that the simulator has (docs/operators.md).

    Returns
    -------
    dict
        `onnx`: operators of ONNX, in a model; `com.microsoft`: operators that ONNX Runtime's optimiser puts into
        models; `single`: CANN's names, for `aclopExecuteV2` and so for `acl.Op` and torch_npu; `torch`: operators
        of PyTorch that were tried with torch_npu and gave PyTorch's results.
    """
    from acl.sim._torch_operators import RIGHT

    ask, domains = _sim().acl_sim_operator, ctypes.c_uint32()
    ask.restype, ask.argtypes = ctypes.c_char_p, [ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint32)]
    found: dict[str, set[str]] = {"onnx": {"Constant", *_CONTROL}, "single": set(), "com.microsoft": set()}
    index = 0
    while (name := ask(index, ctypes.byref(domains))) is not None:
        for bit, domain in ((1, "onnx"), (2, "single"), (4, "com.microsoft")):
            if domains.value & bit:
                found[domain].add(name.decode())
        index += 1
    return {**{domain: sorted(names) for domain, names in found.items()}, "torch": sorted(RIGHT)}


def _names(what: str) -> list[str]:
    """Return the library's names of functions, kinds of handle or chips."""
    ask = getattr(_sim(), f"acl_sim_{what}")
    found: list[str] = []
    while (name := ask(len(found))) is not None:
        found.append(name.decode())
    return found


def functions() -> list[str]:
    """Return the names of the functions of the C API that the simulator has."""
    return _names("function")


def counters() -> dict[str, int]:
    """Return how often each function was called in this process since its start or the last `reset_counters`.

    Returns
    -------
    dict
        From the name of each function that was called to its number of calls.  Calls that a fault made
        fail count, too.
    """
    calls = _sim().acl_sim_calls
    found = {name: calls(i) for i, name in enumerate(functions())}
    return {name: count for name, count in found.items() if count}


def reset_counters() -> None:
    """Set the counters of calls to zero."""
    _sim().acl_sim_calls_clear()


def live_handles() -> dict[str, int]:
    """Return how many objects of each kind exist now; at the end of a test, these are leaks.

    Returns
    -------
    dict
        From each kind of which there are objects ("stream", "event", ...) to their number.
    """
    live = _sim().acl_sim_live
    found = {name: live(i) for i, name in enumerate(_names("kind"))}
    return {name: count for name, count in found.items() if count}


def physical_bytes(device: int = 0) -> int:
    """Return how many bytes of a device's memory are allocated or mapped by this process."""
    return int(_sim().acl_sim_physical_bytes(device))


def physical_peak(device: int = 0) -> int:
    """Return the largest value of `physical_bytes` since the start or the last `reset_physical_peak`."""
    return int(_sim().acl_sim_physical_peak(device))


def reset_physical_peak(device: int = 0) -> None:
    """Set the peak to the present value of `physical_bytes`."""
    _sim().acl_sim_physical_reset_peak(device)


class Fault:
    """A rule that makes calls fail, from its creation until `remove`; also a context manager.

    Made by `fault`.

    Attributes
    ----------
    rule : str
        The rule in the form of `ACL_SIM_FAULTS`.  With "device0:lost=507899" every call for device 0 fails
        with that code until the fault is removed (a reset of the device does not end it).
    """

    def __init__(self, rule: str) -> None:
        number = ctypes.c_uint32()
        _check(_sim().acl_sim_fault_add(rule.encode(), ctypes.byref(number)))
        self.rule = rule
        self._number = number.value
        self._active = True

    @property
    def hits(self) -> int:
        """The number of calls that the rule has made fail."""
        return int(_sim().acl_sim_fault_hits(self._number))

    def remove(self) -> None:
        """End the rule; further calls have no effect."""
        if self._active:
            self._active = False
            _sim().acl_sim_fault_remove(self._number)

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<acl.sim.Fault {self.rule!r}, {'active' if self._active else 'removed'}>"


def fault(
    function: str,
    *,
    nth: int | None = None,
    every: int | None = None,
    p: float | None = None,
    seed: int | None = None,
    times: int | None = None,
    code: int | None = None,
) -> Fault:
    """Make calls of a function fail.

    Parameters
    ----------
    function : str
        The name of the function, or "*" for all functions.
    nth : int
        Only the nth call from now fails, once.
    every : int
        Every call whose number from now is a multiple of this fails.
    p : float
        Each call fails with this probability; the same `seed` makes the same calls fail.
    seed : int
        The seed of the rule's own random sequence.
    times : int
        The largest number of calls that the rule makes fail.
    code : int
        The status to return; by default 207001 (out of memory) from functions that allocate, reserve or map
        memory and 507899 (driver) from all others.  Functions that return no status return NULL or 0.

    Returns
    -------
    Fault
        The rule, which is in force already.  Use it in a `with` statement, or call its `remove`.

    Raises
    ------
    ValueError
        If the simulator has no such function, or a number is out of its range.

    Examples
    --------
    >>> with acl.sim.fault("aclrtMalloc", nth=3, code=207001) as broken:
    ...     run()
    >>> broken.hits
    1
    """
    choices = {"nth": nth, "every": every, "p": p, "seed": seed, "times": times, "code": code}
    given = [f"{key}={value}" for key, value in choices.items() if value is not None]
    return Fault(":".join([function, *given]))


@contextmanager
def device_lost(device: int = 0, code: int = 507899) -> Iterator[None]:
    """Make every call for a device fail with `code` while the `with` statement lasts."""
    _check(_sim().acl_sim_device_lost(device, code))
    try:
        yield
    finally:
        _sim().acl_sim_device_lost(device, 0)


def fail_stream(stream: int, code: int = 507015) -> None:
    """Queue a task on a stream that fails with `code` when the stream runs it.

    Parameters
    ----------
    stream : int
        The stream's handle.
    code : int
        The status that synchronising the stream then gives.
    """
    _check(_sim().acl_sim_stream_fail(ctypes.c_void_p(stream), code))


@contextmanager
def trace(path: str | Path) -> Iterator[Path]:
    """Write a line for each call of the C API while the `with` statement lasts.

    A line is `SECONDS THREAD FUNCTION STATUS PROCESS MICROSECONDS STREAM TASK ARGUMENTS` (docs/simulator.md).

    Parameters
    ----------
    path : path
        The file; it is emptied first.

    Yields
    ------
    pathlib.Path
    """
    target = Path(path)
    _check(_sim().acl_sim_set(b"ACL_SIM_TRACE", str(target).encode()))
    try:
        yield target
    finally:
        _check(_sim().acl_sim_set(b"ACL_SIM_TRACE", b""))


def races() -> list[dict[str, Any]]:
    """Return what the order checker found in this process so far (`ACL_SIM_RACES=1`; docs/races.md).

    Returns
    -------
    list of dict
        The findings in the order in which they were found, each pair of places once.  Empty if the checker is off.
    """
    library = _sim()
    return [json.loads(library.acl_sim_race(i)) for i in range(library.acl_sim_races())]


def declare_kernel(name: str, offset: int, nbytes: int, *, writes: bool) -> None:
    """Tell the order checker how a kernel uses the memory to which an argument points (docs/races.md).

    Parameters
    ----------
    name : str
        The name of the kernel; the declaration is for all kernels of that name.
    offset : int
        The offset of the pointer in the kernel's arguments, in bytes.
    nbytes : int
        The number of bytes that the kernel touches, from the pointer on.
    writes : bool
        Whether the kernel writes these bytes; else it only reads them.

    Raises
    ------
    ValueError
        If 256 arguments were declared already.
    """
    touches = _sim().acl_sim_kernel_touches
    _check(touches(name.encode(), ctypes.c_uint32(offset), ctypes.c_size_t(nbytes), int(writes)))


def lend_stack() -> None:
    """Let the order checker report lines of Python code; `import acl` does this if `ACL_SIM_RACES` is set."""
    from acl.sim._pystack import stack_function

    _sim().acl_sim_races_python(ctypes.c_void_p(stack_function()))


@contextmanager
def races_muted() -> Iterator[None]:
    """Suppress findings of the order checker while the `with` statement lasts; it still follows the order of tasks."""
    _sim().acl_sim_races_mute(1)
    try:
        yield
    finally:
        _sim().acl_sim_races_mute(0)


def reset() -> None:
    """End all faults, the trace and the latency model, and set the counters of calls to zero.

    Devices, handles, memory and the settings of `configure` do not change.
    """
    library = _sim()
    library.acl_sim_fault_clear()
    _check(library.acl_sim_set(b"ACL_SIM_TRACE", b""))
    _check(library.acl_sim_set(b"ACL_SIM_LATENCY", b"off"))
    reset_counters()
