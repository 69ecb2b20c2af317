"""The names of all runtime objects, each of which is defined in a module of its own."""

from acl.runtime._buffer import Buffer, HostBuffer
from acl.runtime._device import Context, Device
from acl.runtime._stream import Event, Stream

__all__ = ["Buffer", "Context", "Device", "Event", "HostBuffer", "Stream"]
