"""Python functions that a thread of the runtime calls in stream order."""

cimport cython

from acl.bind.generated._libacl cimport aclrtStream
from acl.runtime._work cimport Progress


@cython.final
cdef class Callbacks:
    cdef list errors                # exceptions that no `synchronize` has raised yet
    cdef set waiting                # numbers of the jobs that have not run
    cdef Progress progress          # the stream's Progress while `waiting` or `errors` is not empty
    cdef object reporter            # thread that runs the jobs if ACL lacks aclrtLaunchHostFunc

    cdef int launch(
        self, aclrtStream stream, Progress progress, object function, tuple arguments
    ) except -1
    cdef int settle(self) except -1
    cdef int end(self, aclrtStream stream) except -1
