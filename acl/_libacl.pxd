"""The functions of the C API, from `acl.bind.generated._libacl`, for `cimport` elsewhere."""

from acl.bind.generated._libacl cimport *
