"""What only `acl.torch` needs: its C++ part and torch's forms of statistics."""
