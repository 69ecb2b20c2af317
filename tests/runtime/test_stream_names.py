"""Names of streams: in statistics, metrics, reports, the log and `aclpool top`, instead of their handles."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support.child import run_python
from support.streams import destroy, made

import acl
from acl.inside._snapshot import stream_text
from acl.inside._top import pool_numbers
from acl.runtime._names import name_drop, names, stream_name
from acl.tools.top.sample import stream_of
from acl.tools.top.text import stream_row

pytestmark = pytest.mark.usefixtures("no_leaks")

MIB = 1 << 20


def points(pool: acl.Pool, prefix: str = "") -> list[dict[str, Any]]:
    """Return the points with the label `stream` of a pool's metrics whose names begin with `prefix`."""
    return [point for one in acl.metrics.snapshot(0) if one["name"].startswith(prefix) for point in one["points"]
            if "stream" in point["attributes"] and point["attributes"]["pool"] == pool.name]


def series(pool: acl.Pool) -> set[str]:
    """Return the values of the label `stream` in a pool's metrics."""
    return {point["attributes"]["stream"] for point in points(pool)}


def test_stream_has_the_given_name_until_it_is_closed() -> None:
    with acl.Stream(0, name="encoder") as stream:
        assert stream.name == "encoder" and stream_name(stream.handle) == "encoder"
        assert repr(stream).startswith("<Stream encoder handle=0x")
        handle = stream.handle
    assert stream.name == "ended" and handle not in names


def test_streams_without_a_name_have_different_numbers() -> None:
    with acl.Stream(0) as first, acl.Stream(0) as second:
        assert int(second.name) != int(first.name) == int(first.name)
        assert acl.Stream.from_handle(first.handle).name == first.name
    assert acl.Stream.default().name == "default"


@pytest.mark.parametrize(("name", "error"), [(3, TypeError), ("", ValueError), (b"a", TypeError)])
def test_name_that_is_no_text_is_refused_before_a_stream_is_made(name: str, error: type[Exception]) -> None:
    before = len(names)
    with pytest.raises(error, match="name must "):
        acl.Stream(0, name=name)
    assert len(names) == before


def test_name_of_a_stream_that_c_destroyed_is_dropped_with_the_next_question() -> None:
    handles, given = set(), []
    with acl.Pool(0) as pool:
        for _ in range(10):
            handle = made()                     # may be that of the stream before
            pool.register(handle)
            handles.add(handle)
            given.append(stream_name(handle))
            destroy(handle)
        assert stream_name(handle) != given[-1]
        name_drop(handle)
        with acl.Stream(0) as other:
            given.append(other.name)
            assert handles & names.keys() <= {other.handle}
    assert len(set(given)) == 11


def test_stream_with_the_handle_of_an_ended_stream_has_a_name_of_its_own() -> None:
    done = run_python("""
        import acl
        from acl.runtime._names import stream_name
        first = acl.Stream(0, name="first")
        handle = first.handle
        first.close()
        print(stream_name(handle))              # asked of a handle that no stream has
        second = acl.Stream(0)
        print(second.handle == handle, second.name)
        second.close()
        third = acl.Stream(0)
        print(third.handle == handle, third.name)
    """, ACL_SIM_REUSE_HANDLES="1")
    assert done.stdout == "1\nTrue 2\nTrue 3\n", done.stderr


def test_statistics_metrics_and_ledger_have_the_names_of_streams() -> None:
    with acl.Stream(0, name="encoder") as stream, acl.Pool(0) as pool, pool.alloc(MIB, stream), pool.alloc(MIB):
        assert {one.name for one in pool.stats().streams} == {"encoder", "default"} == series(pool)
        ledger = acl.memory_ledger(0)
        (part,) = [one for one in pool.stats().streams if one.name == "encoder"]
        assert ledger.sum(stream_name="encoder", name=pool.name) == part.reserved
        assert "  stream encoder  " in str(ledger)
        assert f"{stream.handle:#x}" not in str(ledger)


def test_metrics_of_streams_with_one_name_are_added_up() -> None:
    with acl.Pool(0) as pool, acl.Stream(0, name="lane") as one, acl.Stream(0, name="lane") as other:
        with pool.alloc(3 * MIB, one), pool.alloc(5 * MIB, other):
            (point,) = points(pool, "aclpool_requested_bytes")
            assert point["attributes"]["stream"] == "lane" and 8 * MIB <= point["value"] < 8 * MIB + 128
            assert point["value"] == pool.stats().requested


def test_series_of_closed_streams_end_and_their_memory_is_counted_as_one() -> None:
    with acl.Pool(0) as pool:
        streams = [acl.Stream(0) for _ in range(20)]
        for stream in streams:
            pool.alloc(MIB, stream).close()
        assert series(pool) == {stream.name for stream in streams}
        for stream in streams:
            stream.close()
        assert series(pool) == {"ended"}
        (point,) = points(pool, "aclpool_stream_reserved_bytes")
        assert point["value"] == sum(one.reserved for one in pool.stats().streams) > 0


def test_out_of_memory_report_and_its_log_entry_name_streams(caplog: pytest.LogCaptureFixture) -> None:
    with acl.Stream(0, name="encoder") as stream, acl.Stream(0, name="other one") as other, \
            acl.Pool(0, "16MiB") as pool, pool.alloc(8 * MIB, other):
        with caplog.at_level(logging.ERROR, "acl.pool"), pytest.raises(acl.OutOfMemoryError) as raised:
            pool.alloc(16 * MIB, stream)
        report = raised.value.report
        assert report is not None
        assert (report.stream_name, report.holds[1].name) == ("encoder", "other one")
        assert "could not be had on stream encoder of" in str(raised.value)
        assert "  stream other one (stream): " in report.details() and "0x" not in report.details()
    (record,) = caplog.records
    assert record.acl_stream_name == "encoder"                      # type: ignore[attr-defined]


def test_top_shows_the_names_of_streams_and_the_handles_of_older_services() -> None:
    with acl.Stream(0, name="encoder") as stream, acl.Pool(0) as pool, pool.alloc(MIB, stream):
        (told,) = [one for one in pool_numbers(pool)["streams"] if one["stream"] == stream.handle]
        assert stream_row(stream_of(told), None).startswith("  stream encoder  ")
        del told["name"]
        assert stream_row(stream_of(told), None).startswith(f"  stream {stream.handle:#x}  ")


def test_text_of_a_stream_is_its_name_or_its_handle() -> None:
    assert [stream_text("default"), stream_text("", 0), stream_text("a", 16), stream_text("", 16)] == [
        "the default stream", "the default stream", "stream a", "stream 0x10"]
