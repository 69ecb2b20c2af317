"""Make the generated files from the table of the ACL C API."""
