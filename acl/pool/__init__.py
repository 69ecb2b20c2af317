"""The Python face of the allocator, and memory that comes from it.

`_pool` is `acl.Pool`; `_options` checks what it is told; `_registry` knows which pool serves which stream; `_sleep`
and `_capture` are two of its uses; `_pinned` and `_nep49` are host memory; `_dlpack` shares it; `_capi` is the table
for C; `_guarded` puts guard bytes behind buffers; `_tags`, `_stacks`, `_refusals` and `_findings` are what it notes.

May import: `bind`, `core`, `runtime`; inside functions also `inside`.  Start with `_pool.pyx`.
"""
