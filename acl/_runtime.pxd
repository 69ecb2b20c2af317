"""The runtime objects, for `cimport` under one name; each lives in a module of its own."""

from acl._buffer cimport Buffer, BufferRelease, HostBuffer, buffer_wrap, host_buffer_wrap
from acl._device cimport Context, Device, current_device, current_ensure, fork_count, leaving
from acl._stream cimport Event, Stream, stream_raw
