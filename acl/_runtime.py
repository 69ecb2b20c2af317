"""The names of the runtime classes in one module; other modules define them."""

from acl.runtime._buffer import Buffer, HostBuffer
from acl.runtime._device import Context, Device
from acl.runtime._stream import Event, Stream

__all__ = ["Buffer", "Context", "Device", "Event", "HostBuffer", "Stream"]
