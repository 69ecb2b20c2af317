"""vLLM-Ascend's extension module by its ABI, for `acl.vllm`."""
