"""Adapters: each lets one framework allocate its memory from a pool.  Each has a folder with its Python, Cython and C.

`pluggable` exports the malloc and free functions that torch_npu and MindSpore call.  `torch` has further code that only
torch needs.  `onnxruntime` and `vllm` are for the frameworks of these names.  The public modules (`acl.torch`,
`acl.vllm`, ...) are in the folder `acl`.

May import: `bind`, `core`, `runtime`, `pool`, `inside`.  Start with the page of the framework in docs.
"""
