"""The classes of streams and events, from `acl.runtime._stream`, for `cimport` elsewhere."""

from acl.runtime._stream cimport *
