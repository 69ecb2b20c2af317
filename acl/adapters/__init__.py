"""What puts a pool behind a framework: one folder for each, with its Python, Cython and C."""
