"""Information about pools: statistics, ledger, tags, recordings, leaks, reports.

`_books` reads the core's counters into the classes of `_snapshot`.  `_ledger` adds up the memory of a device.
`_recording` copies events out of the rings, `_recorded` orders them, `_record_files` writes them.  `_leaks` lists live
blocks, and `_holders` finds the objects that refer to them.  `_oom` describes an out-of-memory report in words.  `_top`
answers `aclpool top`.

May import: `bind`, `core`, `runtime`, `pool`.  Start with `_books.pyx`.
"""
