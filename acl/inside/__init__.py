"""What a pool tells about itself: statistics, ledger, tags, recordings, leaks, reports.

`_books` reads the core's counters into `_snapshot`'s classes; `_ledger` adds up a device; `_recording` copies events
out of the rings, `_recorded` orders them, `_record_files` writes them; `_leaks` and `_holders` say what holds memory;
`_oom` words a report; `_top` answers `aclpool top`.

May import: `bind`, `core`, `runtime`, `pool`.  Start with `_books.pyx`.
"""
