"""The Python interface of the allocator, and the kinds of memory that it gives out.

`_pool` is `acl.Pool`.  `_options` checks its arguments, `_aliases` tries what its device does, and `_registry` knows
which pool serves which stream.  `_sleep` puts blocks to sleep, and `_capture` gives a captured graph its memory.
`_pinned` and `_nep49` manage host memory, `_dlpack` shares memory with other libraries, and `_capi` is the table of
functions for C.  `_guarded` puts guard bytes behind buffers.  `_tags`, `_stacks`, `_refusals` and `_findings` collect
data for the reports.

May import: `bind`, `core`, `runtime`; inside functions also `inside`.  Start with `_pool.pyx`.
"""
