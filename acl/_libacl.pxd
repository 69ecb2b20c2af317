"""The C API, for others to `cimport`: they live in `acl.bind.generated._libacl`."""

from acl.bind.generated._libacl cimport *
