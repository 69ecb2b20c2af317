from typing import Any

__all__ = ["pool_capi"]

# A capsule; Python has no public name for its type.
pool_capi: Any
