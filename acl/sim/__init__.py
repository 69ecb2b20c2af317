"""Controls of the host simulator: devices, chips, capacity, faults, counters.

The simulator is a `libascendcl.so` beside this file.  The `ACL_SIM_*` variables configure it for any
program; the functions here act on the library that this process has loaded (and load it if need be).
All of it holds for the whole process.

Nothing here imports NumPy or opens the library before a function that needs it is called.  Any
thread may call anything; call `configure` while no device is in use.
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

#: Operators of ONNX that the engine runs without a kernel of their own.
_CONTROL = ("ConcatFromSequence", "If", "Loop", "Scan", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
            "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence")

#: What each keyword of `configure` sets.
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
    """The folder with `libascendcl.so` and the libraries that programs expect beside it.

    Returns
    -------
    str
        To be put on a linker's or a loader's path (`-L`, `LD_LIBRARY_PATH`).
    """
    return str(Path(__file__).resolve().parent / "lib")


def loaded() -> bool:
    """Whether this process has loaded the simulator; asking does not load it."""
    try:
        ctypes.CDLL(library_dir() + "/libascendcl.so", os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _sim() -> ctypes.CDLL:
    """The library, opened once; the loader of `acl` opens the same file and so the same library."""
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
    """The variable that a keyword of `configure` sets."""
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
    """Sizes of memory as the library reads them.

    Parameters
    ----------
    value : int, str or sequence of these
        Bytes, or a text with a unit: `8 * 2**30`, `"8GiB"`, `"512M"`, `"8G,4G"`, `["8G", 4 * 2**30]`.
        Units are those of a pool's options: K and KiB are 1024 bytes, KB is 1000.  The last size also
        serves the devices after it.
    name : str, optional
        What an error calls them.

    Returns
    -------
    str
        The bytes, separated by commas.

    Raises
    ------
    ValueError
        If a text is no size, or a size is not positive.
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
    """Choose the simulated world.

    Parameters
    ----------
    devices : int
        How many there are: 0 to 64 (default 2).
    capacity : int, str or sequence
        Memory of each device, as `parse_sizes` takes it (default 32 GiB each).
    pinned : int or str
        The most pinned host memory of the process (default "unlimited").
    soc : str
        The chip: one of `socs()` or another of their families (default Ascend910B1).
    cann : str
        The version of CANN to report, as "8.5.0".
    strict : bool
        Whether device memory is out of the host's reach outside copies.
    strict_allocators : bool
        Whether registering an allocator with a function never set, or on a dead stream, is refused.
    allocators : bool
        Whether aclrtAllocatorRegister works (where the chip has it).
    reuse_handles : bool
        Whether a destroyed handle's value is given to the next object of its kind at once.
    device_code : str
        What launching code that the host cannot run does: "refuse" or "skip".
    latency : str
        How long driver calls take: "off", "memory", or "pcie", which also slows copies between host and device
        to 24 GB/s; "pcie:RATE" to RATE bytes a second, as "pcie:12GB".  May be changed at any time.

    Raises
    ------
    TypeError
        If there is no setting of that name.
    ValueError
        If a value makes no sense, or a device is in use.  What was set before it in the call stays.
    """
    for name, value in settings.items():
        _check(_sim().acl_sim_set(_variable(name).encode(), _encode(name, value)))


def configuration() -> dict[str, str]:
    """The settings in effect, as texts.

    Returns
    -------
    dict
        From the keywords of `configure` to what the library would read.
    """
    buffer = ctypes.create_string_buffer(4096)
    found = {}
    for name, variable in _SETTINGS.items():
        if _sim().acl_sim_get(variable.encode(), buffer, len(buffer)):
            found[name] = buffer.value.decode()
    return found


def socs() -> list[str]:
    """The chips that the simulator knows, the default one first."""
    return _names("soc")


def operators() -> dict[str, list[str]]:
    """The operators that the simulator has (docs/operators.md).

    Returns
    -------
    dict
        `onnx`: of ONNX, in a model; `com.microsoft`: what ONNX Runtime's optimiser puts into models; `single`: by
        CANN's names, for `aclopExecuteV2` and so for `acl.Op` and torch_npu; `torch`: of PyTorch, of those that
        were tried with torch_npu, the ones that gave PyTorch's results.
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
    """The library's names of functions, kinds of handle or chips."""
    ask = getattr(_sim(), f"acl_sim_{what}")
    found: list[str] = []
    while (name := ask(len(found))) is not None:
        found.append(name.decode())
    return found


def functions() -> list[str]:
    """The functions of the C API that the simulator has."""
    return _names("function")


def counters() -> dict[str, int]:
    """How often each function was called in this process since it started or `reset_counters`.

    Returns
    -------
    dict
        From name to calls, for the functions that were called at all.  Calls that a fault stopped
        count too.
    """
    calls = _sim().acl_sim_calls
    found = {name: calls(i) for i, name in enumerate(functions())}
    return {name: count for name, count in found.items() if count}


def reset_counters() -> None:
    """Count from zero again."""
    _sim().acl_sim_calls_clear()


def live_handles() -> dict[str, int]:
    """How many objects of each kind exist now: what leaked, at the end of a test.

    Returns
    -------
    dict
        From kind ("stream", "event", ...) to number, for kinds that have any.
    """
    live = _sim().acl_sim_live
    found = {name: live(i) for i, name in enumerate(_names("kind"))}
    return {name: count for name, count in found.items() if count}


def physical_bytes(device: int = 0) -> int:
    """Bytes of a device's memory in use: everything allocated or mapped, by anybody in the process."""
    return int(_sim().acl_sim_physical_bytes(device))


def physical_peak(device: int = 0) -> int:
    """The most that `physical_bytes` was since the start or `reset_physical_peak`."""
    return int(_sim().acl_sim_physical_peak(device))


def reset_physical_peak(device: int = 0) -> None:
    """Measure the peak from the present value on."""
    _sim().acl_sim_physical_reset_peak(device)


class Fault:
    """Calls that fail: in force from its making until `remove`; also a context manager.

    Made by `fault`.

    Attributes
    ----------
    rule : str
        The rule, as `ACL_SIM_FAULTS` would have it; "device0:lost=507899" is a device that answers
        every call with that code until the fault is removed (no reset brings it back).
    """

    def __init__(self, rule: str) -> None:
        number = ctypes.c_uint32()
        _check(_sim().acl_sim_fault_add(rule.encode(), ctypes.byref(number)))
        self.rule = rule
        self._number = number.value
        self._active = True

    @property
    def hits(self) -> int:
        """How many calls it has made fail."""
        return int(_sim().acl_sim_fault_hits(self._number))

    def remove(self) -> None:
        """End it; may be called twice."""
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
        Its name, or "*" for all.
    nth : int
        Only the nth call from now, once.
    every : int
        Every Nth call.
    p : float
        Each call with this probability; with the same `seed` the same calls.
    seed : int
        Of the rule's own random sequence.
    times : int
        At most this many failures.
    code : int
        The status to return; by default 207001 (out of memory) from functions that get memory and
        507899 (driver) from the rest.  Functions that return no status return NULL or 0.

    Returns
    -------
    Fault
        In force already.  Use it in a `with` statement, or call its `remove`.

    Raises
    ------
    ValueError
        If the simulator has no such function, or a number makes no sense.

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
    """Let a device answer every call with an error while the `with` statement lasts."""
    _check(_sim().acl_sim_device_lost(device, code))
    try:
        yield
    finally:
        _sim().acl_sim_device_lost(device, 0)


def fail_stream(stream: int, code: int = 507015) -> None:
    """Put a task on a stream that fails with `code` when its turn comes.

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
    """Write a line for each call while the `with` statement lasts.

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
    """What the order checker found in this process so far (`ACL_SIM_RACES=1`; docs/races.md).

    Returns
    -------
    list of dict
        In the order in which they were found; each place once.  Empty when nothing is checked.
    """
    library = _sim()
    return [json.loads(library.acl_sim_race(i)) for i in range(library.acl_sim_races())]


def declare_kernel(name: str, offset: int, nbytes: int, *, writes: bool) -> None:
    """Tell the order checker what a kernel does with the memory that an argument names (docs/races.md).

    Parameters
    ----------
    name : str
        Of the kernel; all kernels of that name are meant.
    offset : int
        Where the pointer stands in the kernel's arguments, in bytes.
    nbytes : int
        How much of the memory the kernel touches, from the pointer on.
    writes : bool
        Whether it writes there; else it only reads.

    Raises
    ------
    ValueError
        For the 257th argument.
    """
    touches = _sim().acl_sim_kernel_touches
    _check(touches(name.encode(), ctypes.c_uint32(offset), ctypes.c_size_t(nbytes), int(writes)))


def lend_stack() -> None:
    """Let the order checker name Python's lines; `import acl` does it if `ACL_SIM_RACES` is set."""
    from acl.sim._pystack import stack_function

    _sim().acl_sim_races_python(ctypes.c_void_p(stack_function()))


@contextmanager
def races_muted() -> Iterator[None]:
    """Leave out what the order checker finds while the `with` statement lasts; orders are still kept."""
    _sim().acl_sim_races_mute(1)
    try:
        yield
    finally:
        _sim().acl_sim_races_mute(0)


def reset() -> None:
    """End all faults, the trace and the latency model, and count from zero.

    Devices, handles and memory stay as they are, and so do the settings of `configure`.
    """
    library = _sim()
    library.acl_sim_fault_clear()
    _check(library.acl_sim_set(b"ACL_SIM_TRACE", b""))
    _check(library.acl_sim_set(b"ACL_SIM_LATENCY", b"off"))
    reset_counters()
