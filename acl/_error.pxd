"""The conversion of statuses to exceptions, from `acl.bind._error`, for `cimport` elsewhere."""

from acl.bind._error cimport *
