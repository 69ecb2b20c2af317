"""What puts a pool behind a framework: one folder for each, with its Python, Cython and C.

`pluggable` has the exported malloc and free functions that torch_npu and MindSpore call; `torch` the rest of torch's;
`onnxruntime` and `vllm` theirs.  The public modules (`acl.torch`, `acl.vllm`, ...) stand beside this folder.

May import: `bind`, `core`, `runtime`, `pool`, `inside`.  Start with the page of the framework in docs.
"""
