"""Datasets: the inputs or outputs of a run, as ACL takes them."""

cimport cython
from libc.stdint cimport int64_t

from acl.bind._error cimport check, made_check
from acl.bind.generated._libacl cimport (
    ACL_FORMAT_ND, ACL_SUCCESS, aclCreateDataBuffer, aclCreateTensorDesc, aclDataBuffer,
    aclDataType, aclDestroyDataBuffer, aclDestroyTensorDesc, aclError, aclGetTensorDescDimV2,
    aclGetTensorDescNumDims, aclGetTensorDescType, aclTensorDesc, aclmdlAddDatasetBuffer,
    aclmdlCreateDataset, aclmdlDataset, aclmdlDestroyDataset, aclmdlGetDatasetBuffer,
    aclmdlGetDatasetTensorDesc, aclmdlSetDatasetTensorDesc,
)
from acl.runtime._buffer cimport Buffer

from acl.runtime._tensor import DTYPE_CODES, DTYPE_NAMES


cdef void dataset_free(aclmdlDataset *dataset, size_t count) noexcept nogil:
    """Destroy a dataset and its `count` data buffers, but not the memory of the buffers."""
    cdef size_t i
    if dataset is NULL:
        return
    for i in range(count):
        aclDestroyDataBuffer(aclmdlGetDatasetBuffer(dataset, i))
    aclmdlDestroyDataset(dataset)


@cython.final
cdef class Dataset:
    """An `aclmdlDataset`, which is freed with the object; a dataset of inputs has their shapes."""

    def __cinit__(self):
        self.descs = []
        self.raw = aclmdlCreateDataset()
        made_check(self.raw, "aclmdlCreateDataset")

    def __dealloc__(self):
        cdef size_t desc
        dataset_free(self.raw, self.count)
        for desc in self.descs:
            aclDestroyTensorDesc(<aclTensorDesc *> desc)

    cdef int add(self, void *address, size_t size) except -1:
        cdef aclDataBuffer *buffer = aclCreateDataBuffer(address, size)
        made_check(buffer, "aclCreateDataBuffer")
        cdef aclError status = aclmdlAddDatasetBuffer(self.raw, buffer)
        if status != ACL_SUCCESS:
            aclDestroyDataBuffer(buffer)
        check(status, "aclmdlAddDatasetBuffer")
        self.count += 1
        return 0

    cdef int describe(self, size_t index, int dtype, tuple shape) except -1:
        cdef int64_t[128] dims
        cdef int i
        if len(shape) > 128:
            raise ValueError(f"an array has at most 128 dimensions here, not {len(shape)}")
        for i in range(<int> len(shape)):
            dims[i] = shape[i]
        cdef aclTensorDesc *desc = aclCreateTensorDesc(
            <aclDataType> dtype, <int> len(shape), dims, ACL_FORMAT_ND)
        made_check(desc, "aclCreateTensorDesc")
        self.descs.append(<size_t> desc)
        check(aclmdlSetDatasetTensorDesc(self.raw, desc, index), "aclmdlSetDatasetTensorDesc")
        return 0

    cdef tuple shape(self, size_t index):
        """Return the shape that a run set for an output; None if it set none."""
        cdef aclTensorDesc *desc = aclmdlGetDatasetTensorDesc(self.raw, index)
        cdef int64_t dim
        cdef size_t i
        if desc is NULL:
            return None
        found = []
        for i in range(aclGetTensorDescNumDims(desc)):
            check(aclGetTensorDescDimV2(desc, i, &dim), "aclGetTensorDescDimV2")
            found.append(dim)
        return tuple(found)

    cdef str dtype(self, size_t index):
        """Return the name of the element type that a run set for an output."""
        cdef aclTensorDesc *desc = aclmdlGetDatasetTensorDesc(self.raw, index)
        if desc is NULL:
            raise ValueError(f"the model does not tell the element type of output {index}")
        return DTYPE_NAMES[<int> aclGetTensorDescType(desc)]

    cdef tuple shapes(self):
        return tuple([self.shape(i) for i in range(self.count)])


cdef Dataset dataset_of(list arrays, tuple infos):
    cdef Dataset dataset = Dataset()
    cdef size_t i
    for i, (array, info) in enumerate(zip(arrays, infos)):
        dataset.add((<Buffer> array.buffer).address, array.nbytes)
        dataset.describe(i, DTYPE_CODES[info.dtype], array.shape)
    return dataset


cdef Dataset dataset_of_buffers(list buffers):
    cdef Dataset dataset = Dataset()
    for buffer in buffers:
        dataset.add((<Buffer> buffer).address, (<Buffer> buffer).size)
    return dataset
