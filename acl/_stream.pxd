"""Streams and events, for others to `cimport`: they live in `acl.runtime._stream`."""

from acl.runtime._stream cimport *
