"""The runtime objects under one name; each lives in a module of its own."""

from acl._buffer import Buffer, HostBuffer
from acl._device import Context, Device
from acl._stream import Event, Stream

__all__ = ["Buffer", "Context", "Device", "Event", "HostBuffer", "Stream"]
