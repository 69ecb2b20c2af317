"""pyACL's functions (`acl.rt.malloc` and others) on top of the C API, and their use beside CANN's own module `acl`.

`generated/` has the functions. They call the modules here: `_call` (arguments and results), `_layout` (structs as
dicts), `_config`, `_hooks`, `_listeners` and `_threads` (callbacks), `_supply` (allocators in Python), and
`_special` (functions that the generator's table cannot describe). `_vendor` and `_media` load CANN's module.

Imports `bind`, `runtime` and `pool`.  Start with `_call.pyx`.
"""
