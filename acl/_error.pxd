"""Statuses as exceptions, for others to `cimport`: they live in `acl.bind._error`."""

from acl.bind._error cimport *
