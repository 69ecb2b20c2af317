"""How pyACL's functions take and give Python values, and live beside CANN's own module.

`generated/` has the functions; here is what they call: `_call` (arguments and results), `_layout` (structs as
dicts), `_config`, `_hooks`, `_listeners` and `_threads` (callbacks), `_supply` (allocators in Python),
`_special` (functions that no row of the table can say), `_vendor` and `_media` (beside CANN's module).

Imports `bind`, `runtime` and `pool`.  Start with `_call.pyx`.
"""
