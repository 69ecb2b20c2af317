"""The C API of ACL, bound at the first call, and its errors.  All other rooms use this one.

`_libacl` declares every function of ACL as a pointer that is filled when the library is opened (`loader.c`).  `_error`
turns a status into an exception; no other module does.  `generated/` is written by `tools/generate`.

May import: nothing of this package.  Start with `_error.pyx`, then `libacl.pyx.in`.
"""
