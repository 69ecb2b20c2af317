"""AscendCL for Python: pyACL's names with pyACL's conventions, and our own names beside them."""

__version__ = "0.1.0"
