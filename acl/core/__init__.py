"""The parts of the allocator that its callbacks (`acl._core`) use: C without GIL and objects, one concept a module.

From the bottom: `lock.h` (the biased lock), `types` (structs, invariants), `policy` (tuned constants), `_bins` (sizes,
free lists), `_record` (events), `_driver` (each driver call), `_frames` (mappings), `_place` (address ranges,
placements), `_pages` (filling a placement, pages that leave), `_order` (pending frees), `_asleep`, `_tally` (counts),
`_turns` (what streams take from each other), `_climb` (the fallback steps), `_check` (invariants), `_oom` (reports),
`_arena` (pools, streams), `_captures`, `_trim`; above the callbacks `_guard` (guard bytes).

May import: `bind`, and what stands below in this list (`.ci/package_rooms.py`).
Start with docs/life_of_an_allocation.md.
"""
