"""The Python face of the allocator, and memory that comes from it."""
