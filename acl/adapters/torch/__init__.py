"""The C++ part of `acl.torch`, and its conversion of statistics to torch's forms."""
