"""The arguments and results of pyACL's functions: see `_call.pyx`."""

from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int64_t, uint8_t, uint16_t, uint64_t


cdef extern from *:
    """
    #include <Python.h>
    typedef PyObject *(*AclpoolTaking)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
    typedef PyObject *(*AclpoolPlain)(PyObject *, PyObject *const *, Py_ssize_t);

    /* CPython declares every kind of method as PyCFunction and tells them apart by the flags. */
    static inline PyMethodDef aclpool_taking(const char *name, AclpoolTaking call, const char *doc)
    {
        PyMethodDef method = {name, (PyCFunction)(void (*)(void))call,
                              METH_FASTCALL | METH_KEYWORDS, doc};
        return method;
    }
    static inline PyMethodDef aclpool_plain(const char *name, AclpoolPlain call, const char *doc)
    {
        PyMethodDef method = {name, (PyCFunction)(void (*)(void))call, METH_FASTCALL, doc};
        return method;
    }
    """
    ctypedef struct PyMethodDef:
        const char *ml_name
    # The C types of functions with parameters, and of functions without, which ignore their
    # arguments.
    ctypedef object (*Taking "AclpoolTaking")(object, PyObject *const *, Py_ssize_t, PyObject *)
    ctypedef object (*Plain "AclpoolPlain")(object, PyObject *const *, Py_ssize_t)
    PyMethodDef taking "aclpool_taking"(const char *name, Taking call, const char *doc)
    PyMethodDef plain "aclpool_plain"(const char *name, Plain call, const char *doc)


# An argument for C.  Each member has the name of its kind's letter; kinds with the same C type
# share a member: K uses k, l uses L, z uses s, and I uses u.
ctypedef union Value:
    signed char b
    uint8_t B
    int16_t h
    uint16_t H
    int i
    unsigned int u
    int64_t L
    uint64_t k
    float f
    const char *s
    PyObject *o
    void *p


cdef int take(
    const char *what, PyObject *const *args, Py_ssize_t n, PyObject *names, Value *out
) except -1
cdef object install(str module, PyMethodDef *methods)

cdef inline uint64_t address(void *value, int ret) noexcept:
    """Return a pointer as an int, as pyACL does; 0 if the call that should have set it failed."""
    return <uint64_t> value if ret == 0 else 0


cdef object text(const char *value)
cdef object refuse(const char *what, int argument, str expected, object got)
