"""The classes of buffers, devices, streams, events and contexts, for `cimport` from one module."""

from acl.runtime._buffer cimport Buffer, BufferRelease, HostBuffer, buffer_wrap, host_buffer_wrap
from acl.runtime._device cimport Context, Device, current_device, current_ensure, fork_count
from acl.runtime._device cimport leaving
from acl.runtime._stream cimport Event, Stream, stream_raw
