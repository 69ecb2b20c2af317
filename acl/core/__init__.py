"""The allocator below its callbacks (`acl._core`): C without the GIL and without objects, one concept in a module.

From the bottom: `lock.h` (the biased lock), `_bins` (sizes, free lists), `_driver` (each driver call), `_frames`
(mappings), `_place` (address ranges, placements), `_pages` (filling a placement, pages that leave), `_turns` (what
streams take from each other), `_climb` (the fallback steps), `_asleep`, `_arena` (pools, streams), `_order` (pending
frees, captures), `_check` (invariants), `_record` and `_tally` (events, counts), `_guard` (guard bytes).

May import: `bind`.  Start with docs/life_of_an_allocation.md.
"""
