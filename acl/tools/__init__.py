"""What the command `aclpool` runs."""
