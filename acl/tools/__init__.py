"""The tools of the command `aclpool`: a module or a folder for each of its commands; `cli` finds them.

`bench`, `replay` and `compare` measure the allocator; `view`, `top` and `ledger` show its memory; `doctor` tests the
machine; `demo` compares allocators on small models; `run` and `sim` start programs.  `_rig` is the core test harness.

May import: every room.  Start with `cli.py`, then `ledger.py`, the shortest command.
"""
