"""The C++ part of `acl.torch`, and the conversion of statistics to torch's dicts."""
