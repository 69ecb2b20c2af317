"""Python functions that a thread of the runtime calls in stream order."""

cimport cython

from acl.bind.generated._libacl cimport aclrtStream


@cython.final
cdef class Callbacks:
    cdef list errors                # exceptions that no `synchronize` has raised yet
    cdef set waiting                # numbers of the jobs that have not run
    cdef object progress            # the stream's Progress while `waiting` or `errors` is not empty
    cdef object reporter            # thread that runs the jobs if ACL lacks aclrtLaunchHostFunc

    cdef int launch(
        self, aclrtStream stream, object progress, object function, tuple arguments
    ) except -1
    cdef int settle(self) except -1
    cdef int end(self, aclrtStream stream) except -1
