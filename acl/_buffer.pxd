"""The classes of buffers, from `acl.runtime._buffer`, for `cimport` by other packages."""

from acl.runtime._buffer cimport *
