"""Make and check a release: the source archive, and the wheels of both architectures."""
