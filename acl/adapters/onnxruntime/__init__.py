"""ONNX Runtime's memory, for `acl.ort`."""
