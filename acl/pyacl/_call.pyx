"""Arguments and results of pyACL's functions.

The functions are built-in functions made from `PyMethodDef`s, like those of CANN's own module.  A
Cython `def` with typed parameters would have other error messages, accept other types, and take
twice as long to compile.  The function `take` converts all arguments by pyACL's rules.  It converts
exact ints and floats itself, which is fast, and all other arguments by CPython's `PyArg_Parse`, as
CANN's functions do.  For an argument that it refuses, it raises `TypeError("acl.rt.malloc args
parse failed")` with the reason as the cause.

Everything here holds the GIL.  It calls no function of ACL.
"""

import sys

from cpython.object cimport PyObject
from libc.limits cimport INT_MAX, INT_MIN
from libc.stdint cimport int64_t

cdef extern from "Python.h":
    bint PyLong_CheckExact(PyObject *value) noexcept
    unsigned long long PyLong_AsUnsignedLongLongMask(PyObject *value) noexcept
    long long PyLong_AsLongLongAndOverflow(PyObject *value, int *overflow) noexcept
    bint PyFloat_CheckExact(PyObject *value) noexcept
    double PyFloat_AS_DOUBLE(PyObject *value) noexcept
    int PyArg_Parse(PyObject *value, const char *format, ...) except 0
    object PyCFunction_NewEx(PyMethodDef *method, object self, object module)
    PyObject *PyTuple_GET_ITEM(PyObject *items, Py_ssize_t i) noexcept
    Py_ssize_t PyTuple_GET_SIZE(PyObject *items) noexcept

cdef enum:
    MOST = 24       # largest number of parameters that a function may have

# By the letter of a kind: what an error message says was expected.
cdef dict EXPECTED = {
    "b": "an int from 0 to 255", "B": "an int", "h": "an int of 16 bits", "H": "an int",
    "i": "an int of 32 bits", "I": "an int", "k": "an int", "K": "an int", "l": "an int of 64 bits",
    "L": "an int of 64 bits", "s": "a str without NUL", "z": "a str without NUL, or None",
    "f": "a float",
}


cdef inline bint value_fast(char kind, PyObject *given, Value *out) noexcept:
    """Convert an exact int or float; return False if it is something else or does not fit."""
    cdef int overflow = 0
    cdef int64_t number
    if kind == c"k" or kind == c"K":
        if not PyLong_CheckExact(given):
            return False
        out.k = PyLong_AsUnsignedLongLongMask(given)
        return True
    if kind == c"i":
        if not PyLong_CheckExact(given):
            return False
        number = PyLong_AsLongLongAndOverflow(given, &overflow)
        if overflow or number < INT_MIN or number > INT_MAX:
            return False
        out.i = <int> number        # the number fits, as tested above
        return True
    if kind == c"I":
        if not PyLong_CheckExact(given):
            return False
        out.u = <unsigned int> PyLong_AsUnsignedLongLongMask(given)   # pyACL cuts it to 32 bits too
        return True
    if kind == c"O":
        out.o = given
        return True
    if kind == c"f" and PyFloat_CheckExact(given):
        out.f = <float> PyFloat_AS_DOUBLE(given)
        return True
    return False


cdef int value_slow(char kind, PyObject *given, Value *out) except -1:
    """Convert an argument by CPython's `PyArg_Parse`."""
    cdef char[2] format
    if kind == c" " or kind == c"|" or kind == 0:
        raise TypeError("too many arguments")
    format[0] = kind
    format[1] = 0
    out.k = 0
    PyArg_Parse(given, format, out)
    return 0


cdef str function_name(const char *what):
    """Return the name in a signature: `acl.rt.malloc` for "ki acl.rt.malloc size policy"."""
    return what.decode().split(" ")[1]


cdef list parameter_names(const char *what):
    return what.decode().split(" ")[2:]


cdef int fail(const char *what, Py_ssize_t argument, char kind, PyObject *given) except -1:
    """Raise the TypeError for an argument (the first is 0) that is not of its kind."""
    parameters = parameter_names(what)
    if given == NULL:
        reason = f"argument {argument + 1} ({parameters[argument]}) is missing"
    elif argument >= len(parameters):
        reason = f"at most {len(parameters)} arguments are taken, more were given"
    else:
        expected = EXPECTED.get(chr(kind), "another type")
        reason = f"argument {argument + 1} ({parameters[argument]}): expected {expected}, got "
        reason += f"{<object> given!r:.80} of type {type(<object> given).__name__}"
    raise TypeError(f"{function_name(what)} args parse failed") from TypeError(reason)


cdef int take_slow(
    const char *what, char kind, Py_ssize_t i, PyObject *given, Value *out
) except -1:
    """Convert argument `i` by `PyArg_Parse`; raise pyACL's TypeError if that fails."""
    try:
        value_slow(kind, given, out)
    except (TypeError, ValueError, OverflowError):
        fail(what, i, kind, given)
    return 0


cdef int take_named(
    const char *what, PyObject *const *args, Py_ssize_t n, PyObject *names, Value *out
) except -1:
    """Convert the arguments of a call with keywords: put them into order, then convert them."""
    cdef PyObject *sorted_args[MOST]
    cdef Py_ssize_t i, place, most = 0
    parameters = parameter_names(what)
    for i in range(MOST):
        sorted_args[i] = args[i] if i < n else NULL
    for i in range(PyTuple_GET_SIZE(names)):
        name = <str> PyTuple_GET_ITEM(names, i)
        if name not in parameters:
            reason = f"there is no parameter {name!r}"
            raise TypeError(f"{function_name(what)} args parse failed") from TypeError(reason)
        place = parameters.index(name)
        if sorted_args[place] != NULL:
            reason = f"parameter {name!r} was given twice"
            raise TypeError(f"{function_name(what)} args parse failed") from TypeError(reason)
        sorted_args[place] = args[n + i]
        most = max(most, place + 1)
    return take(what, sorted_args, max(n, most), NULL, out)


cdef int take(
    const char *what, PyObject *const *args, Py_ssize_t n, PyObject *names, Value *out
) except -1:
    """Convert the arguments of a function to C values in `out`, or raise TypeError.

    `what` is the signature: "kinds name parameter parameter ...".  A kind is a letter as in the
    format strings of `PyArg_Parse`.  Parameters after `|` are optional; their value is 0 if they
    are not given.  Objects and strings are borrowed from the arguments.
    """
    cdef Py_ssize_t i
    cdef const char *kind = what
    if names != NULL and PyTuple_GET_SIZE(names):
        return take_named(what, args, n, names, out)
    for i in range(n):
        if kind[0] == c"|":
            kind += 1
        if args[i] == NULL:
            return fail(what, i, kind[0], NULL)
        if not value_fast(kind[0], args[i], &out[i]):
            take_slow(what, kind[0], i, args[i], &out[i])
        kind += 1
    if kind[0] == c" ":
        return 0
    if kind[0] != c"|":
        return fail(what, n, kind[0], NULL)
    while kind[1] != c" ":
        kind += 1
        out[n].k = 0
        n += 1
    return 0


cdef object text(const char *value):
    """Return a C string of the library as a str; None for NULL."""
    if value == NULL:
        return None
    return value.decode("utf-8", "replace")


cdef object refuse(const char *what, int argument, str expected, object got):
    """Return the TypeError for an argument (the first is 1) that is refused after `take`."""
    name = function_name(what)
    parameter = parameter_names(what)[argument - 1]
    cause = TypeError(
        f"{name}: argument {argument} ({parameter}): expected {expected}, got {got!r:.80}")
    error = TypeError(f"argument {argument} is not {expected}")
    error.__cause__ = cause
    return error


cdef object install(str module, PyMethodDef *methods):
    """Put functions into their module.  `__module__` of the functions in `_root` is `acl`."""
    found = sys.modules[module]
    public = "acl" if module.endswith("._root") else module
    while methods.ml_name != NULL:
        setattr(found, methods.ml_name.decode(), PyCFunction_NewEx(methods, found, public))
        methods += 1
