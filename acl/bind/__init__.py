"""The C API, bound when it is first called, and its errors. All other rooms use this one.

`_libacl` declares every function of ACL as a pointer that is filled when the library is opened (`loader.c`);
`_error` turns a status into an exception, in one place.  `generated/` is written by `tools/generate`.

May import: nothing of this package.  Start with `_error.pyx`, then `libacl.pyx.in`.
"""
