"""The function table of the pool, for others to `cimport`: they live in `acl.pool._capi`."""

from acl.pool._capi cimport *
