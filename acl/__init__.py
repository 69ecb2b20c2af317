"""AscendCL for Python: pyACL's names with pyACL's conventions, and our own names beside them.

`import aclpool as acl` gets this module on every machine, also where CANN's own `acl` comes first.
"""

import importlib

from acl import _root, _vendor, mdl, op, prof, rt, util
from acl._buffer import Buffer, HostBuffer
from acl._copy import copy, copy_2d, copy_async, fill, to_bytes, to_numpy
from acl._device import Context, Device
from acl._error import AclError, InvalidArgumentError, NotSupportedError, OutOfMemoryError, TimeoutError
from acl._libacl import backend, cann_version, include_dir, library
from acl._pool import Capture, Pool, use_pool
from acl._registry import Allocator, allocator_of
from acl._root import *  # noqa: F403
from acl._stream import Event, Stream

__version__ = "0.1.0"

__all__ = [
    "AclError",
    "Allocator",
    "Array",  # noqa: F405
    "Buffer",
    "Capture",
    "Context",
    "Device",
    "Event",
    "HostBuffer",
    "InvalidArgumentError",
    "NotSupportedError",
    "OomReport",  # noqa: F405
    "OutOfMemoryError",
    "Pool",
    "PoolStats",  # noqa: F405
    "Stream",
    "StreamStats",  # noqa: F405
    "TimeoutError",
    "allocator_of",
    "backend",
    "cann_version",
    "copy",
    "copy_2d",
    "copy_async",
    "fill",
    "include_dir",
    "library",
    "sim",  # noqa: F405
    "to_bytes",
    "to_numpy",
    "use_pool",
]
# The surface of pyACL.
__all__ += ["mdl", "op", "prof", "rt", "util"]
__all__ += _root.__all__

# Loaded at first use, so that `import acl` stays quick.
_MODULES = {"sim"}
_LATER = {
    "Array": "acl._array",
    "OomReport": "acl._snapshot",
    "PoolStats": "acl._snapshot",
    "StreamStats": "acl._snapshot",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"acl.{name}")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    return _vendor.lookup(name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
