"""The C API, late-bound, and its errors: what everything else stands on.

`_libacl` declares every function of ACL as a pointer that is filled when the library is opened (`loader.c`);
`_error` turns a status into an exception, in one place.  `generated/` is written by `tools/generate`.

May import: nothing of this package.  Start with `_error.pyx`, then `libacl.pyx.in`.
"""
