"""Buffers, for others to `cimport`: they live in `acl.runtime._buffer`."""

from acl.runtime._buffer cimport *
