"""The class `Pool`, from `acl.pool._pool`, for `cimport` by other packages."""

from acl.pool._pool cimport *
