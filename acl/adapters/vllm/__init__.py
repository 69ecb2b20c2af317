"""A module with the ABI of vLLM-Ascend's extension module, for `acl.vllm`."""
