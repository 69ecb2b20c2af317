"""Models, single operators and kernels that run on a stream, and their outputs.

`_model` runs a compiled model; `_extents` predicts the shapes of its outputs; `_dataset` converts a run's inputs and
outputs to ACL's structures; `_weights` allocates the memory that the instances of a model share; `_op` and `_kernel`
launch operators and kernels; `_staging` copies inputs through pinned memory; `_run` has the outcome of a run; `_await`
waits for runs in coroutines.

May import: `bind`, `runtime`, `pool`, `inside`, `pyacl`.  Start with `_op.pyx`, the shortest.
"""
