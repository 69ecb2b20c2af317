"""What makes and checks a release: the source archive, the wheels of both architectures."""
