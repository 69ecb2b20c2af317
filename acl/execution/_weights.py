"""Device memory for the weights of a model that has several instances."""

from __future__ import annotations

import os
from typing import Any

from acl import mdl, util
from acl.bind._error import error_for
from acl.runtime._buffer import Buffer
from acl.runtime._device import Device, ordinal_of

__all__ = ["weights_memory"]


def weights_memory(source: str | os.PathLike[str] | bytes, device: Any) -> Buffer | None:
    """Return newly allocated device memory for the weights of a model; None if ACL reports a size of 0."""
    ordinal = ordinal_of(device)
    if Device.current() is None:
        Device(ordinal).use()
    with Device(ordinal):
        if not isinstance(source, bytes):
            function = "aclmdlQuerySize"
            _, size, status = mdl.query_size(os.fspath(source))
        else:
            function = "aclmdlQuerySizeFromMem"
            _, size, status = mdl.query_size_from_mem(util.bytes_to_ptr(source), len(source))
        if status:
            raise error_for(status, function)
        return Buffer(size) if size else None
