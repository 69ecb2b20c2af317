"""What runs on a stream: models, single operators, kernels, and their outputs."""
