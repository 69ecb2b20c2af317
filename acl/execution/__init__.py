"""Work on a stream: models, single operators and kernels, and their outputs.

`_model` runs a compiled model, and `_extents` predicts the shapes of its outputs; `_dataset` converts a run's inputs
and outputs to ACL's form, and `_weights` allocates the memory that instances of a model share; `_op` and `_kernel`
launch operators and kernels; `_staging` copies inputs through pinned memory; `_run` is the outcome of a run; `_await`
waits for runs in coroutines.

May import: `bind`, `runtime`, `pool`, `inside`, `pyacl`.  Start with `_op.pyx`, the shortest.
"""
