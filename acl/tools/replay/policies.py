"""Find the policies of other allocators, which are in `bench/policies` of a checkout, not in the package."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

__all__ = ["POLICY_NAMES", "load_policies"]

POLICY_NAMES = ("exact", "pow2", "torch", "ge", "arena", "buddy")


@functools.cache
def load_policies() -> Any:
    """Return the module with the classes `Ledger` and `Policy`; the first call may compile it.

    Raises
    ------
    ValueError
        The working directory is not the root of a clone, and neither is the folder that contains the package; or
        the module does not compile.
    """
    for root in (Path.cwd(), Path(__file__).parents[3]):
        file = root / "bench/policies/build.py"
        if file.is_file():
            spec = importlib.util.spec_from_file_location("acl_bench_policies", file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.load()
    raise ValueError("the policies of other allocators are in the folder bench/policies of aclpool's repository; "
                     f"run this in its root, not in {Path.cwd()}")
