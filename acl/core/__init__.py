"""The parts of the allocator below its callbacks (`acl._core`): C without GIL and Python objects, one concept a module.

From the bottom: `lock.h` (the biased lock), `_ends` (streams that have ended), `types` (structs, invariants), `policy`
(tuned constants), `_bins` (sizes, free lists), `_record` (events), `_driver` (all driver calls), `_frames` (mappings),
`_place` (address ranges, placements), `_pages` (filling a placement, taking pages out of an arena), `_order` (pending
frees), `_asleep` (sleeping blocks), `_tally` (statistics), `_turns` (bursts: pages of other streams), `_climb` (the
fallback steps), `_check` (invariants), `_oom` (reports), `_arena` (pools, streams), `_captures`, `_trim`.  Above the
callbacks: `_guard` (guard bytes).

A module may import `bind`, and the modules before it in this list (`.ci/package_rooms.py`).  Start with
docs/life_of_an_allocation.md.
"""
