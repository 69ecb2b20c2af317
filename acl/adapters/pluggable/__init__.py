"""The library that torch_npu and MindSpore open as their allocator."""
