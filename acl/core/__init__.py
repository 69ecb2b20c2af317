"""What the allocator's callbacks (`acl._core`) stand on: C without the GIL, one concept in a module."""
