"""The allocator below its callbacks (`acl._core`): C without the GIL and without objects, one concept in a module.

From the bottom: `lock.h` (the biased lock), `_bins` (sizes, free lists), `_record` (events), `_driver` (each driver
call), `_place` (address ranges, placements), `_frames` (mappings), `_check` (invariants), `_pages` (filling a
placement, pages that leave), `_tally` (counts), `_asleep`, `_turns` (what streams take from each other), `_climb` (the
fallback steps), `_order` (pending frees, captures), `_arena` (pools, streams), `_guard` (guard bytes).

May import: `bind`, and what stands below in this list (`.ci/package_rooms.py`).
Start with docs/life_of_an_allocation.md.
"""
