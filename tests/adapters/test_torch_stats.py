"""The pool's counters in torch's form; and the errors of `acl.torch` and `acl.mindspore` without their frameworks."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from support.child import run_python

from acl.adapters.torch import _stats as _torch_stats

STAT = {"current": 3, "peak": 5, "allocated": 9, "freed": 6}
SMALL = {"current": 1, "peak": 2, "allocated": 4, "freed": 3}
LARGE = {"current": 2, "peak": 3, "allocated": 5, "freed": 3}
FRONT = {
    "blocks": [STAT, SMALL, LARGE], "bytes": [{key: 512 * value for key, value in one.items()} for one in
                                              (STAT, SMALL, LARGE)],
    "requested": [STAT, SMALL, LARGE], "reserved": [STAT, SMALL, LARGE], "pages": [STAT, SMALL, LARGE], "ooms": 2,
    "retries": 1, "driver_allocs": 4, "driver_frees": 1,
}


def test_torch_statistics_have_the_names_that_torch_uses() -> None:
    nested = _torch_stats.nested_stats(FRONT)
    assert nested["allocation"] == {"all": STAT, "small_pool": SMALL, "large_pool": LARGE}
    assert nested["allocated_bytes"]["large_pool"]["peak"] == 3 * 512
    assert nested["reserved_bytes"] == nested["segment"] == {"all": STAT, "small_pool": SMALL, "large_pool": LARGE}
    assert (nested["num_ooms"], nested["num_alloc_retries"], nested["num_device_alloc"]) == (2, 1, 4)


def test_torch_statistics_of_an_unused_device_are_zero() -> None:
    nested = _torch_stats.nested_stats(None)
    assert set(nested) == set(_torch_stats.nested_stats(FRONT))
    assert nested["allocation"]["all"]["current"] == nested["reserved_bytes"]["all"]["peak"] == 0


def test_memory_snapshot_rows_add_up_to_the_totals() -> None:
    run = [(4096, 512, "live", 100), (4608, 1024, "waiting", 0), (5632, 512, "free", 0)]
    made = _torch_stats.snapshot({0: [(77, True, run)], 1: []})
    (segment,) = made["segments"]
    assert (segment["address"], segment["total_size"], segment["stream"]) == (4096, 2048, 77)
    assert (segment["allocated_size"], segment["active_size"], segment["requested_size"]) == (512, 1536, 100)
    assert [block["state"] for block in segment["blocks"]] == ["active_allocated", "active_pending_free", "inactive"]
    assert segment["segment_type"] == "small" and made["device_traces"] == [[], []]


@pytest.mark.parametrize(("module", "package"), [("torch", "torch_npu"), ("mindspore", "mindspore")])
def test_import_without_the_framework_raises_an_error_that_names_the_framework(module: str, package: str) -> None:
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    done = run_python(f"""
        import aclpool as acl
        try:
            acl.{module}
        except AttributeError as error:
            print(error)
        try:
            import acl.{module}
            raise SystemExit("it was imported")
        except ImportError as error:
            print(error)
        import inspect, pydoc
        assert not hasattr(acl, "{module}")
        assert inspect.getmembers(acl) and pydoc.render_doc(acl)
        import acl.sim          # the rest of acl is unharmed
        assert acl.Device.count() == 2
    """)
    assert done.returncode == 0, done.stderr
    assert f"acl.{module} needs" in done.stdout and "pip install" in done.stdout
