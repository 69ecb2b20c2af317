"""The C API, late-bound, and its errors: what everything else stands on."""
