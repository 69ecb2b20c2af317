"""Addresses of Python objects, and views of memory at addresses: pyACL's `acl.util`.

As in pyACL, neither an address nor a view keeps the memory alive; the caller must keep the object
that owns it.  Programs write through the address of a `bytes` object although it is immutable, so
the function returns the address of the object's own bytes, not of a copy.  NumPy is imported only
if the caller asks for an array.  An ndarray is read through its `__array_struct__`, so the build
does not need NumPy.

Everything here holds the GIL and calls no function of ACL.
"""

import sys
import warnings

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport uint64_t

from acl.pyacl._call cimport Value, take

cdef extern from *:
    """
    /* NumPy's array interface, C side, version 2. */
    typedef struct {
        int two;
        int nd;
        char typekind;
        int itemsize;
        int flags;
        Py_ssize_t *shape;
        Py_ssize_t *strides;
        void *data;
        PyObject *descr;
    } AclpoolArray;
    """
    ctypedef struct AclpoolArray:
        int two
        int flags
        void *data

cdef enum:
    CONTIGUOUS = 1

# NumPy's letter for each of its type numbers 0 to 23.  A dot stands for objects, texts and records,
# whose elements are not plain numbers.
cdef str LETTERS = "?bBhHiIlLqQfdgFDG....Mme"


cdef int check_array(object data, str name) except -1:
    """Raise ValueError if `data` is not an ndarray.  This does not import NumPy."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(data, numpy.ndarray):
        raise ValueError(f"{name}: expected a numpy.ndarray, got {type(data).__name__}")
    return 0


cdef uint64_t array_address(object data, bint *contiguous) except? 0:
    """Return the address of an array's first element."""
    cdef AclpoolArray *array
    capsule = data.__array_struct__
    array = <AclpoolArray *> PyCapsule_GetPointer(capsule, NULL)
    contiguous[0] = array.flags & CONTIGUOUS
    return <uint64_t> array.data


cdef object util_numpy_to_ptr(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    cdef Value[1] a
    cdef bint contiguous
    cdef uint64_t address
    take(b"O acl.util.numpy_to_ptr data", args, n, names, a)
    data = <object> a[0].o
    check_array(data, "acl.util.numpy_to_ptr")
    warnings.warn("acl.util.numpy_to_ptr is superseded by bytes_to_ptr", Warning, stacklevel=1)
    address = array_address(data, &contiguous)
    if not contiguous:
        warnings.warn("the array is not C-contiguous: its elements are not in order",
                      Warning, stacklevel=1)
    return address


cdef object util_numpy_contiguous_to_ptr(
    object self, PyObject *const *args, Py_ssize_t n, PyObject *names
):
    cdef Value[1] a
    cdef bint contiguous
    cdef uint64_t address
    take(b"O acl.util.numpy_contiguous_to_ptr data", args, n, names, a)
    data = <object> a[0].o
    check_array(data, "acl.util.numpy_contiguous_to_ptr")
    warnings.warn("acl.util.numpy_contiguous_to_ptr is superseded by bytes_to_ptr", Warning,
                  stacklevel=1)
    address = array_address(data, &contiguous)
    if not contiguous:
        data = data.copy("C")
        address = array_address(data, &contiguous)
    return address, data


cdef class Memory:
    """An object over plain memory, from which `numpy.asarray` makes an array without a copy."""

    cdef readonly dict __array_interface__

    def __init__(self, interface):
        self.__array_interface__ = interface


cdef object util_ptr_to_numpy(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    cdef Value[3] a
    cdef const char *what = b"kOi acl.util.ptr_to_numpy ptr shape npy_type"
    take(what, args, n, names, a)
    shape = <object> a[1].o
    if not isinstance(shape, tuple):
        raise ValueError(f"acl.util.ptr_to_numpy: expected a tuple as shape, got {shape!r:.80}")
    letter = LETTERS[a[2].i] if 0 <= a[2].i < len(LETTERS) else "."
    if letter == ".":
        raise ValueError(f"acl.util.ptr_to_numpy: NumPy's type number {a[2].i} has no raw form")
    if a[0].k == 0:
        raise ValueError("acl.util.ptr_to_numpy: expected an address, got 0")
    import numpy
    warnings.warn("acl.util.ptr_to_numpy is superseded by ptr_to_bytes", Warning, stacklevel=1)
    dtype = numpy.dtype(letter)
    array = numpy.asarray(Memory({
        "data": (a[0].k, False), "shape": shape, "typestr": dtype.str, "version": 3,
    }))
    return array if array.dtype.num == dtype.num else array.view(dtype)


cdef object util_bytes_to_ptr(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    cdef Value[1] a
    take(b"O acl.util.bytes_to_ptr data", args, n, names, a)
    data = <object> a[0].o
    if not PyBytes_Check(data):
        raise ValueError(f"acl.util.bytes_to_ptr: expected bytes, got {type(data).__name__}")
    return <uint64_t> PyBytes_AS_STRING(data)


cdef object util_ptr_to_bytes(object self, PyObject *const *args, Py_ssize_t n, PyObject *names):
    cdef Value[2] a
    take(b"kk acl.util.ptr_to_bytes ptr size", args, n, names, a)
    if a[0].k == 0 and a[1].k != 0:
        raise ValueError("acl.util.ptr_to_bytes: expected an address, got 0")
    if a[1].k > <uint64_t> sys.maxsize:
        raise ValueError(f"acl.util.ptr_to_bytes: {a[1].k} bytes are more than an object can hold")
    return PyBytes_FromStringAndSize(<const char *> a[0].p, <Py_ssize_t> a[1].k)
