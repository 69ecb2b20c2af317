"""An allocator for ONNX Runtime's CPU memory, for `acl.ort`."""
