"""The pool's table of C functions, from `acl.pool._capi`, for `cimport` by other packages."""

from acl.pool._capi cimport *
