"""Adapters that make a pool the allocator of a framework: one folder for each, with its Python, Cython and C.

`pluggable` exports the malloc and free functions that torch_npu and MindSpore call. `torch` has what else torch needs;
`onnxruntime` and `vllm` are for these.  The public modules (`acl.torch`, `acl.vllm`, ...) are in the folder above.

May import: `bind`, `core`, `runtime`, `pool`, `inside`.  Start with the page of the framework in docs.
"""
