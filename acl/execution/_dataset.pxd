"""Datasets: the inputs or outputs of a run, as ACL takes them."""

from acl.bind.generated._libacl cimport aclmdlDataset


cdef class Dataset:
    cdef aclmdlDataset *raw
    cdef size_t count
    cdef list descs                 # addresses of the tensor descriptions to destroy, as ints

    cdef int add(self, void *address, size_t size) except -1
    cdef int describe(self, size_t index, int dtype, tuple shape) except -1
    cdef tuple shape(self, size_t index)
    cdef str dtype(self, size_t index)
    cdef tuple shapes(self)


# Return the dataset of a run's inputs, with their shapes.
cdef Dataset dataset_of(list arrays, tuple infos)
cdef Dataset dataset_of_buffers(list buffers)
