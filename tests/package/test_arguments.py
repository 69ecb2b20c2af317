"""Wrong arguments: each error names the argument, what was expected, and the value that was passed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import acl


class Things:
    """The objects that the calls are made with."""

    def __init__(self) -> None:
        self.pool = acl.Pool(0)
        self.stream = acl.Stream(0)
        self.buffer = self.pool.alloc(4096)

    def close(self) -> None:
        self.buffer.close()
        self.stream.close()
        self.pool.close()


@pytest.fixture(scope="module")
def things() -> Any:
    made = Things()
    yield made
    made.close()


CASES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda t: acl.Device("0"), TypeError, "ordinal must be an int or a Device, not str"),
    (lambda t: acl.Device(1 << 40), ValueError, "ordinal must be 0 or more, and below 2"),
    (lambda t: acl.Stream("0"), TypeError, "device must be an int or a Device, not str"),
    (lambda t: acl.Stream(1.5), TypeError, "device must be an int or a Device, not float"),
    (lambda t: acl.Pool("0"), TypeError, "device must be an int or a Device, not str"),
    (lambda t: acl.Pool(1 << 40), ValueError, "device must be 0 or more"),
    (lambda t: acl.Pool(0, limit=1 << 70), ValueError, "limit must be below"),
    (lambda t: acl.Pool(0, limit="99999999TiB"), ValueError, "limit must be below"),
    (lambda t: acl.Pool(0, pages=[]), ValueError, r"pages must be one of .*, not \[\]"),
    (lambda t: acl.Pool(0, sync_timeout_ms="5"), TypeError, "sync_timeout_ms must be an int, not str"),
    (lambda t: acl.Pool(0, steal="no"), TypeError, "steal must be a bool, not str"),
    (lambda t: acl.Pool(0, segments="yes"), TypeError, "segments must be a bool, not str"),
    (lambda t: t.pool.alloc(10, tag=[]), TypeError, "tag must be a str, not list"),
    (lambda t: t.pool.tag(3), TypeError, "name must be a str, not int"),
    (lambda t: t.pool.tag_stream(None, 3), TypeError, "name must be a str, not int"),
    (lambda t: acl.Pool(0, sync_timeout_ms=1 << 40), ValueError, "sync_timeout_ms must be positive"),
    (lambda t: acl.Pool(0, views="maybe"), ValueError, "views must be a bool or 'always', not 'maybe'"),
    (lambda t: acl.Pool(0, decay_ms="5"), TypeError, "decay_ms must be an int, not str"),
    (lambda t: t.pool.register(-1), ValueError, "stream must be a Stream or the handle of one, not -1"),
    (lambda t: t.pool.sleep(3), TypeError, "tags must be a text or texts, not int"),
    (lambda t: t.pool.sleep([3]), TypeError, "tags must be texts, not int"),
    (lambda t: t.pool.sleep(offload=3), TypeError, "offload must be a text or texts, not int"),
    (lambda t: t.pool.wake(3), TypeError, "tags must be a text or texts, not int"),
    (lambda t: acl.Model(b"x", "0"), TypeError, "device must be an int or a Device, not str"),
    (lambda t: acl.Model(None), TypeError, "source must be a path or a model's content, not NoneType"),
    (lambda t: acl.Model(1.5), TypeError, "source must be a path or a model's content, not float"),
    (lambda t: acl.Model([1, 2]), TypeError, "source must be a path or a model's content, not list"),
    (lambda t: acl.Module(5), TypeError, "source must be a path or a binary's content, not int"),
    (lambda t: acl.Stream(priority=-1), ValueError, "priority must be from 0 to 4294967295, not -1"),
    (lambda t: acl.Stream(priority="high"), TypeError, "priority must be an int, not str"),
    (lambda t: acl.Stream(flags=1.5), TypeError, "flags must be an int, not float"),
    (lambda t: acl.copy(t.buffer, b"x", target_offset=-1), ValueError, "target_offset must be at least 0 .*, not -1"),
    (lambda t: acl.copy(t.buffer, b"x", source_offset="1"), TypeError, "source_offset must be an int, not str"),
    (lambda t: acl.copy(t.buffer, b"x", nbytes=-1), ValueError, "nbytes must be at least 0 .*, not -1"),
    (lambda t: acl.copy_async(t.buffer, b"x", nbytes=1 << 70), ValueError, r"nbytes must be .* below 2\*\*63"),
    (lambda t: acl.copy_2d(t.buffer, -1, b"x", 1, 1, 1), ValueError, "target_pitch must be at least 0 .*, not -1"),
    (lambda t: acl.copy_2d(t.buffer, 1, b"x", "1", 1, 1), TypeError, "source_pitch must be an int, not str"),
    (lambda t: acl.copy_2d(t.buffer, 1, b"x", 1, 1.5, 1), TypeError, "width must be an int, not float"),
    (lambda t: acl.copy_2d(t.buffer, 1, b"x", 1, 1, 1 << 70), ValueError, r"height must be .* below 2\*\*63"),
    (lambda t: acl.copy_2d(bytearray(4), 2, b"abcd", 2, 2, 2), ValueError, "target or source must be device memory"),
    (lambda t: acl.to_numpy(t.buffer, "V0"), TypeError, "dtype must be of plain items of at least one byte, not 'V0'"),
    (lambda t: acl.to_numpy(t.buffer, [("a", "O")]), TypeError, "dtype must be of plain items"),
    (lambda t: t.buffer.view(-1), ValueError, "offset must be at least 0 .*, not -1"),
    (lambda t: t.buffer.view(0, "1"), TypeError, "size must be an int, not str"),
    (lambda t: acl.Buffer.from_address(1 << 20, -1), ValueError, "size must be at least 0 .*, not -1"),
    (lambda t: acl.Buffer(1 << 70), ValueError, r"size must be .* below 2\*\*63"),
    (lambda t: acl.HostBuffer(1 << 70), ValueError, r"size must be .* below 2\*\*63"),
    (lambda t: acl.fill(t.buffer, "x"), TypeError, "value must be an int, not str"),
    (lambda t: acl.fill(t.buffer, offset=4097), ValueError, "offset must be at most 4096, not 4097"),
    (lambda t: acl.fill(bytearray(3)), TypeError, "target must be a Buffer or an Array, not bytearray"),
    (lambda t: acl.fill(3), TypeError, "target must be a Buffer, an Array, .*, not int"),
    (lambda t: acl.Op("Add")(t.buffer, t.buffer), acl.InvalidArgumentError, "input 0 of Add: .* got a Buffer"),
    (lambda t: acl.Buffer("x"), TypeError, "size must be an int, not str"),
    (lambda t: acl.HostBuffer([]), TypeError, "size must be an int, not list"),
    (lambda t: acl.pinned_empty(3, pool=5), TypeError, "pool must be a PinnedPool or None, not int"),
    (lambda t: acl.from_dlpack(3), TypeError, "source must have __dlpack__, or be a capsule of it, not int"),
    (lambda t: t.buffer.__dlpack__(stream="x"), TypeError, "stream must be a Stream, a handle or None, not str"),
    (lambda t: t.buffer.__dlpack__(max_version=3), TypeError, "max_version must be a pair of ints or None, not 3"),
    (lambda t: t.buffer.__dlpack__(dl_device=(1,)), TypeError, "dl_device must be a pair of ints or None"),
    (lambda t: t.stream.on_close(3), TypeError, "closer must be callable, not int"),
    (lambda t: t.stream.synchronize("5"), TypeError, "timeout_ms must be an int or None, not str"),
]


@pytest.mark.parametrize(("call", "error", "text"), CASES, ids=[text[:40] for _, _, text in CASES])
def test_wrong_argument_of_a_public_function_is_refused_by_name(
    things: Things, call: Callable[[Any], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(things)
    assert things.pool.check() == 0
