"""Converts dicts and lists of Python to structs and arrays of C, and back.

The data for C is a `bytes` object.  The caller keeps it until the call of C has returned; then
Python frees it.  The layout of a struct is a line of text, which the generator makes from the table
of the C API.  The offsets in it are checked against the headers when the module is compiled.  An
example:

    id@0I type@4I name@8[128]s dims@136[128:dimCount]l location@1160{id@0I type@4I}

A field has a name, an offset in bytes, and a type.  The type is a letter of pyACL's kinds, `s` for
text up to NUL, `c` for bytes, or the fields of a struct in braces.  An array has a count in
brackets before its type: `[n]`, `[n*stride]` if the elements are not plain numbers, or `[n:field]`
if another field has the number of used elements.  Members of a union have the same offset; only the
members that are in the dict are written.  A field whose key is not in the dict is 0.

Everything here holds the GIL and calls no function of ACL.
"""

import sys
import warnings

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memcpy, memset

from acl.pyacl._call cimport refuse


cdef enum:
    MOST_TEXT = 1 << 20
    MOST_ROOM = 64 << 20


cdef struct Field:
    const char *name
    Py_ssize_t name_size
    size_t offset
    int depth               # number of array dimensions (counts in brackets)
    size_t[2] count
    size_t[2] stride        # bytes from one element to the next; 0: the size of the type
    const char *used        # name of the field that has the number of used elements, or NULL
    Py_ssize_t used_size


cdef size_t width(char kind) except 0:
    """Return the size of a number of that kind."""
    if kind in b"bBsc":
        return 1
    if kind in b"hH":
        return 2
    if kind in b"iIf":
        return 4
    if kind in b"lLkKp":
        return 8
    raise SystemError(f"no such kind: {chr(kind)}")


cdef int number_put(object given, char kind, void *out) except -1:
    """Store one number.  An int that is too large wraps around as in C; None is stored as 0."""
    cdef uint64_t bits
    cdef float real
    if kind == c"f":
        real = given
        memcpy(out, &real, sizeof(real))
        return 0
    bits = <object> int(given) & 0xFFFFFFFFFFFFFFFF
    memcpy(out, &bits, width(kind))     # CANN's two processor types are little-endian
    return 0


cdef object number_get(const void *value, char kind):
    if kind == c"b":
        return (<const int8_t *> value)[0]
    if kind == c"B":
        return (<const uint8_t *> value)[0]
    if kind == c"h":
        return (<const int16_t *> value)[0]
    if kind == c"H":
        return (<const uint16_t *> value)[0]
    if kind == c"i":
        return (<const int32_t *> value)[0]
    if kind == c"I":
        return (<const uint32_t *> value)[0]
    if kind == c"l" or kind == c"L":
        return (<const int64_t *> value)[0]
    if kind == c"f":
        return (<const float *> value)[0]
    return (<const uint64_t *> value)[0]


# ---- layouts ----


cdef size_t digits(const char **at) noexcept:
    """Return the number at the cursor, and move the cursor behind it."""
    cdef size_t number = 0
    while c"0" <= at[0][0] <= c"9":
        number = number * 10 + <size_t> (at[0][0] - c"0")   # a digit, so not negative
        at[0] += 1
    return number


cdef int field_read(const char **at, Field *field) except -1:
    """Read the name, offset and counts of a field; move the cursor to its letter or brace."""
    field.name = at[0]
    while at[0][0] != c"@":
        at[0] += 1
    field.name_size = at[0] - field.name
    at[0] += 1
    field.offset = digits(at)
    field.depth = 0
    field.used = NULL
    while at[0][0] == c"[":
        at[0] += 1
        field.count[field.depth] = digits(at)
        field.stride[field.depth] = 0
        if at[0][0] == c"*":
            at[0] += 1
            field.stride[field.depth] = digits(at)
        if at[0][0] == c":":
            field.used = at[0] + 1
            while at[0][0] != c"]":
                at[0] += 1
            field.used_size = at[0] - field.used
        at[0] += 1
        field.depth += 1
    return 0


cdef void type_skip(const char **at) noexcept:
    """Move the cursor behind a letter, or behind a brace and its fields."""
    cdef int depth = 0
    while True:
        if at[0][0] == c"{":
            depth += 1
        elif at[0][0] == c"}":
            depth -= 1
        at[0] += 1
        if depth == 0:
            return


cdef int value_put(object given, const char *type, Field *field, int level, char *out) except -1:
    """Store a value in a field; for an array, its elements in the dimensions from `level` on."""
    cdef size_t i, stride
    cdef bytes raw
    if level == field.depth:
        if type[0] == c"{":
            return struct_put(given, type + 1, out)
        return number_put(given, type[0], out)
    if type[0] == c"s" or type[0] == c"c":
        raw = given.encode() if isinstance(given, str) else bytes(given)
        if <size_t> len(raw) + (type[0] == c"s") > field.count[level]:
            raise ValueError(f"{field.name[:field.name_size].decode()} is longer than its field")
        memcpy(out, PyBytes_AS_STRING(raw), len(raw))
        return 0
    if <size_t> len(given) > field.count[level]:
        raise ValueError(f"{field.name[:field.name_size].decode()} has more than its "
                         f"{field.count[level]} elements")
    stride = field.stride[level] or width(type[0])
    for i, item in enumerate(given):
        value_put(item, type, field, level + 1, out + i * stride)
    return 0


cdef int struct_put(object given, const char *at, char *out) except -1:
    """Store the values of a dict in a struct, whose memory is zeroed.

    `at` is the struct's layout.
    """
    cdef Field field
    if not isinstance(given, dict):
        raise TypeError(f"expected a dict, got {type(given).__name__}")
    while at[0] and at[0] != c"}":
        field_read(&at, &field)
        if field.name_size == 0:       # an unnamed union: its members count as the struct's members
            struct_put(given, at + 1, out + field.offset)
        else:
            item = (<dict> given).get(field.name[:field.name_size].decode())
            if item is not None:
                value_put(item, at, &field, 0, out + field.offset)
        type_skip(&at)
        if at[0] == c" ":
            at += 1
    return 0


cdef object value_get(const char *type, Field *field, int level, const char *value, dict others):
    cdef size_t i, stride, count
    if level == field.depth:
        if type[0] == c"{":
            return struct_get(type + 1, value)
        return number_get(value, type[0])
    count = field.count[level]
    if type[0] == c"c":
        return value[:count]
    if type[0] == c"s":
        return value[:count].split(b"\0", 1)[0].decode("utf-8", "replace")
    if level == 0 and field.used != NULL:
        count = min(count, <size_t> others[field.used[:field.used_size].decode()])
    stride = field.stride[level] or width(type[0])
    return [value_get(type, field, level + 1, value + i * stride, others) for i in range(count)]


cdef dict struct_get(const char *at, const char *value):
    """Convert a struct to a dict."""
    cdef Field field
    cdef dict found = {}
    while at[0] and at[0] != c"}":
        field_read(&at, &field)
        if field.name_size == 0:
            found.update(struct_get(at + 1, value + field.offset))
        else:
            name = field.name[:field.name_size].decode()
            found[name] = value_get(at, &field, 0, value + field.offset, found)
        type_skip(&at)
        if at[0] == c" ":
            at += 1
    return found


cdef bytes room(size_t size):
    """Return a zeroed `bytes` object.  C may write to it as long as no other code has it."""
    cdef bytes made = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> size)
    memset(PyBytes_AS_STRING(made), 0, size)
    return made


cdef bytes room_for(size_t count, size_t size, const char *what):
    """Return zeroed memory for `count` elements; raise ValueError if that is too much."""
    if count > MOST_ROOM // size:
        name = what.decode().split(" ")[1]
        raise ValueError(f"{name}: room for {count} elements is more than {MOST_ROOM} bytes")
    return room(count * size)


cdef bytes bounded(int64_t size, const char *what, int64_t most=MOST_TEXT):
    """Return zeroed memory for a text of `size` bytes and a NUL.

    Raise ValueError for a bad size.
    """
    if size < 0 or size >= most:
        name = what.decode().split(" ")[1]
        raise ValueError(f"{name}: expected a length from 0 to {most - 1}, got {size}")
    return room(<size_t> size + 1)      # `size` is not negative, as tested above


cdef void *at(bytes packed) noexcept:
    """Return the address of the packed data; NULL for None."""
    return NULL if packed is None else PyBytes_AS_STRING(packed)


cdef bytes pack_struct(
    object given, const char *layout, size_t size, const char *what, int argument
):
    """Return a dict as a struct of C."""
    if not isinstance(given, dict):
        raise refuse(what, argument, "dict", given)
    made = room(size)
    struct_put(given, layout, PyBytes_AS_STRING(made))
    return made


cdef bytes pack_structs(
    object given, const char *layout, size_t size, const char *what, int argument
):
    """Return a list of dicts as an array of structs."""
    cdef size_t i
    if not isinstance(given, list):
        raise refuse(what, argument, "list", given)
    made = room(size * <size_t> len(given))
    for i, item in enumerate(given):
        if not isinstance(item, dict):
            raise refuse(what, argument, "list of dict", item)
        struct_put(item, layout, PyBytes_AS_STRING(made) + i * size)
    return made


cdef dict unpack_struct(const void *value, const char *layout):
    return struct_get(layout, <const char *> value)


cdef list unpack_structs(const void *values, size_t count, size_t size, const char *layout):
    cdef size_t i
    return [struct_get(layout, <const char *> values + i * size) for i in range(count)]


# ---- plain arrays ----

# Kinds for which an ndarray is accepted too: NumPy's letters of the element types that fit.
cdef dict DTYPES = {"L": "ql", "f": "f", "B": "?B"}


cdef bytes pack(object given, char kind, const char *what, int argument):
    """Return a list as an array of numbers; for the kind `s`, as an array of strings' addresses."""
    cdef size_t i, step
    cdef char *out
    if not isinstance(given, list):
        raise refuse(what, argument, "list", given)
    if kind == c"s":
        return pack_strings(given, what, argument)
    step = width(kind)
    made = room(step * <size_t> len(given))
    out = PyBytes_AS_STRING(made)
    for i, item in enumerate(given):
        try:
            number_put(item if kind == c"f" else item.__index__(), kind, out + i * step)
        except (AttributeError, TypeError):
            raise refuse(what, argument, "list of float" if kind == c"f" else "list of int", item)
    return made


cdef bytes pack_strings(list given, const char *what, int argument):
    """Return one `bytes` object with the addresses of the strings, and the strings behind them."""
    cdef size_t i, at, count = len(given)
    cdef uint64_t place
    cdef char *out
    for item in given:
        if not isinstance(item, str) or "\0" in item:
            raise refuse(what, argument, "list of str", item)
    raws = [item.encode() for item in given]
    at = 8 * count
    made = room(at + <size_t> sum(len(raw) + 1 for raw in raws))
    out = PyBytes_AS_STRING(made)
    for i, raw in enumerate(raws):
        place = <uint64_t> (out + at)
        memcpy(out + 8 * i, &place, 8)
        memcpy(out + at, PyBytes_AS_STRING(raw), len(raw))
        at += <size_t> len(raw) + 1
    return made


cdef bytes pack_array(object given, char kind, const char *what, int argument):
    """Return a list as an array of numbers; or the bytes of an ndarray, after a warning."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(given, numpy.ndarray):
        return pack(given, kind, what, argument)
    if given.dtype.char not in DTYPES[chr(kind)]:
        raise refuse(what, argument, f"list, or ndarray of {DTYPES[chr(kind)][0]!r}", given.dtype)
    warnings.warn("an ndarray is taken by its raw data; pass a list", Warning)
    return given.tobytes()


cdef tuple pack_lists(object given, const char *what, int argument):
    """Convert a list of lists of int64.

    Return the lengths, the addresses of each list's numbers, and the object that holds the numbers.
    """
    if not isinstance(given, list):
        raise refuse(what, argument, "list", given)
    held = [pack_array(item, c"L", what, argument) for item in given]
    counts = pack([len(one) // 8 for one in held], c"i", what, argument)
    places = pack([<uint64_t> PyBytes_AS_STRING(<bytes> one) for one in held], c"k", what, argument)
    return counts, places, held


cdef bytes pack_pids(object given, const char *what, int argument):
    """Return a list of process ids as an array.

    Raise ValueError, as pyACL does, for other types.
    """
    if not isinstance(given, list):
        error = ValueError(str(refuse(what, argument, "list", given)))
        raise error
    return pack(given, c"i", what, argument)


cdef bytes pack_pairs(object given, const char *what, int argument):
    """Return a list of lists of two ints as an array of pairs of int64."""
    if not isinstance(given, list):
        raise refuse(what, argument, "list", given)
    for item in given:
        if not isinstance(item, list) or len(item) != 2:
            raise refuse(what, argument, "list of lists of two ints", item)
    return pack([number for item in given for number in item], c"L", what, argument)


cdef list unpack(const void *values, size_t count, char kind):
    cdef size_t i, step = width(kind)
    return [number_get(<const char *> values + i * step, kind) for i in range(count)]


cdef int same(size_t one, size_t other, const char *what) except -1:
    """Raise ValueError if two lists differ in length, because C gets one length for both."""
    if one != other:
        name = what.decode().split(" ")[1]
        raise ValueError(f"{name}: lists of one length expected, got {one} and {other} elements")
    return 0
