"""A replacement for vLLM-Ascend's extension module, with the same ABI, for `acl.vllm`."""
