"""The small project's own Python test: `pytest check_bytes.py`."""

import aclpool as acl


def test_bytes_come_back() -> None:
    with acl.Pool(device=0, limit="64MiB") as pool, pool.alloc(16) as buffer:
        acl.copy(buffer, b"sixteen bytes...")
        back = bytearray(16)
        acl.copy(back, buffer)
        assert back == b"sixteen bytes..."


def test_memory_that_is_refused_raises() -> None:
    with acl.sim.fault("aclrtMallocPhysical"), acl.Pool(device=0, limit="64MiB") as pool:
        try:
            pool.alloc("8MiB")
        except acl.OutOfMemoryError:
            return
        raise AssertionError("no error")
