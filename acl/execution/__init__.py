"""What runs on a stream: models, single operators, kernels, and their outputs.

`_model` runs a compiled model and predicts the shapes of its outputs (`_extents`); `_dataset` gives a run's inputs and
outputs ACL's form, and `_weights` is the memory that instances of a model share; `_op` and `_kernel` launch
operators and kernels; `_staging` copies inputs through pinned memory; `_run` is the outcome of a run.

May import: `bind`, `runtime`, `pool`, `inside`, `pyacl`.  Start with `_op.pyx`, the shortest.
"""
