"""The shared library from which torch_npu and MindSpore allocate memory."""
