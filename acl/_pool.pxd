"""Pools, for others to `cimport`: they live in `acl.pool._pool`."""

from acl.pool._pool cimport *
