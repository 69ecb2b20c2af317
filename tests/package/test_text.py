"""`printable` and `replaced`: foreign text for terminals, XML and metrics; files written completely or not at all."""

from __future__ import annotations

import os
import random
import resource
import stat
import xml.dom.minidom
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.child import run_python

import acl
from acl import metrics
from acl.inside._text import printable, replaced, write_replaced
from acl.tools import cli
from acl.tools.replay.trace import TraceError, load_trace
from acl.tools.view.sources import load_history

EVIL = "red\x1b[31m\x07\n\r\0\x9b2J\u202egpj\u2028\udce9\x7f<b>&'\""


@pytest.mark.parametrize(("text", "expected"), [
    ("größe 日本 a b", "größe 日本 a b"), ("\x1b[2J", "\\x1b[2J"), ("a\tb\n", "a\\x09b\\x0a"),
    ("\x9b\x7f", "\\x9b\\x7f"),
    ("\udce9", "\\udce9"), ("\u202e\u2066\ufeff", "\\u202e\\u2066\\ufeff"), (Path("a\nb"), "a\\x0ab"),
])
def test_printable_escapes_what_is_more_than_a_character(text: Any, expected: str) -> None:
    assert printable(text) == expected


def test_printable_leaves_the_lines_of_a_text_of_lines() -> None:
    assert printable("a\nb\x1b\r\n", lines=True) == "a\nb\\x1b\\x0d\n"


def test_control_characters_of_a_tag_appear_in_no_output(tmp_path: Path) -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    with acl.Pool(0, name=f"pool {EVIL}", limit="8MiB") as pool:
        collector = metrics.PrometheusCollector(registry)
        with pool.record() as recording, pool.track():
            block = pool.alloc(4000, tag=EVIL)
            with pytest.raises(acl.OutOfMemoryError):
                pool.alloc("16MiB", tag=EVIL)
        recording.save(tmp_path / "run.npz")
        shown = [str(acl.memory_ledger(0)), pool.leaks().text(), str(pool.last_oom()),
                 client.generate_latest(registry).decode()]
        for name in metrics.snapshot():
            shown += [value for point in name["points"] for value in point["attributes"].values() if value]
        collector.close()
        collector.close()                       # a second call does nothing
        block.close()
    for text in shown:
        assert text.encode() and not set(text) & set("\x1b\x07\r\0\x9b\u202e\x7f"), text
    assert cli.main(["view", str(tmp_path / "run.npz"), "--plot", str(tmp_path / "run.svg"), "-q",
                     "-o", str(tmp_path / "run.html")]) == 0
    xml.dom.minidom.parse(str(tmp_path / "run.svg"))
    assert b"\x1b" not in (tmp_path / "run.html").read_bytes()


def test_collectors_of_two_devices_can_share_one_registry() -> None:
    client = pytest.importorskip("prometheus_client")
    registry = client.CollectorRegistry()
    with acl.Pool(0, name="first"), acl.Pool(1, name="second"):
        made = [metrics.PrometheusCollector(registry, device=device) for device in (0, 1)]
        page = client.generate_latest(registry).decode()
        assert page.count("# HELP aclpool_reserved_bytes ") == 1
        assert 'pool="first"' in page and 'pool="second"' in page
        with pytest.raises(ValueError, match="Duplicated"):
            metrics.PrometheusCollector(registry, device=1)
        made[0].close()
        page = client.generate_latest(registry).decode()
        assert 'pool="first"' not in page and 'pool="second"' in page
        made[1].close()
        assert client.generate_latest(registry) == b""


@pytest.mark.subprocess_heavy
def test_scrape_in_a_forked_child_gives_the_metrics_of_other_libraries() -> None:
    pytest.importorskip("prometheus_client")
    done = run_python("""
        import os, prometheus_client, acl
        registry = prometheus_client.CollectorRegistry()
        prometheus_client.Counter("requests", "Somebody else's.", registry=registry).inc()
        acl.metrics.PrometheusCollector(registry)
        pool = acl.Pool(0)
        if (child := os.fork()) == 0:
            os._exit(b"requests_total 1.0" not in prometheus_client.generate_latest(registry))
        assert os.waitpid(child, 0)[1] == 0
    """)
    assert done.returncode == 0, done.stderr


# ---- files


def test_file_is_replaced_only_after_it_is_completely_written(tmp_path: Path) -> None:
    file = tmp_path / "page"
    file.write_text("the old one")
    file.chmod(0o640)
    with pytest.raises(ZeroDivisionError), replaced(file) as made:
        made.write(b"half")
        raise ZeroDivisionError
    assert (file.read_text(), [one.name for one in tmp_path.iterdir()]) == ("the old one", ["page"])
    write_replaced(file, "the new one \udce9")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("the new one \\udce9", 0o640)
    (tmp_path / "link").symlink_to(file)
    write_replaced(tmp_path / "link", "through a link")
    assert (tmp_path / "link").is_symlink() and file.read_text() == "through a link"
    before = os.umask(0o077)
    try:
        write_replaced(tmp_path / "mine", "")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o600


def test_output_that_is_not_a_regular_file_is_written_directly() -> None:
    write_replaced("/dev/null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize("ending", ["npz", "pickle"])
def test_recording_that_cannot_be_saved_leaves_the_old_file(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"run.{ending}").write_bytes(b"old")
    done = run_python(f"""
        import resource, signal
        import acl
        pool = acl.Pool(0)
        with pool.record(stacks=False) as recording:
            for size in range(1, 40000, 3):
                pool.alloc(size).close()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        recording.save({str(tmp_path / "run")!r} + ".{ending}")
    """)
    assert "File too large" in done.stderr
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [(f"run.{ending}", b"old")]


# ---- damaged files


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    with acl.Pool(0) as pool:
        with pool.record(stacks="python") as recording:
            for size in range(64, 512, 64):
                pool.alloc(size, tag="t</script>").close()
        for ending in ("npz", "pickle"):
            recording.save(folder / f"run.{ending}")
    return folder


@pytest.mark.parametrize("read", [load_trace, load_history])
@pytest.mark.parametrize("ending", ["npz", "pickle"])
def test_damaged_recording_is_read_or_refused_with_a_trace_error(
    recorded: Path, tmp_path: Path, ending: str, read: Any, seed: int = 5) -> None:
    print(f"seed {seed}")
    whole, numbers = (recorded / f"run.{ending}").read_bytes(), random.Random(seed)
    damaged = [whole[:end] for end in range(0, len(whole), max(1, len(whole) // 150))]
    for _ in range(300):
        other = bytearray(whole)
        for _ in range(numbers.choice([1, 1, 2, 5])):
            other[numbers.randrange(len(other))] = numbers.randrange(256)
        damaged.append(bytes(other))
    file, told = tmp_path / f"bad.{ending}", 0
    for data in damaged:
        file.write_bytes(data)
        try:
            read(file)
        except TraceError:
            told += 1
    assert told > 150


def test_a_message_about_a_damaged_file_is_short(recorded: Path, tmp_path: Path) -> None:
    """zipfile's own message contains the name of a member as the file has it: up to 64 KiB."""
    whole = (recorded / "run.npz").read_bytes()
    at = whole.index(b"op.npy") - 4
    file = tmp_path / "bad.npz"
    file.write_bytes(whole[:at] + b"\xff\x0f" + whole[at + 2:])
    with pytest.raises(TraceError, match="not a trace") as told:
        load_trace(file)
    assert len(str(told.value)) < 600


@pytest.mark.parametrize("name", ["stack", "event_at"])
def test_an_array_that_is_not_of_whole_numbers_is_refused(recorded: Path, tmp_path: Path, name: str) -> None:
    arrays = dict(np.load(recorded / "run.npz"))
    arrays[name] = arrays[name].astype(np.complex128)
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(TraceError, match=f"'{name}': expected whole numbers, got complex128"):
        load_history(tmp_path / "bad.npz")


@pytest.mark.parametrize("name", ["time", "before", "event_size"])
def test_an_array_that_is_too_short_is_refused(recorded: Path, tmp_path: Path, name: str) -> None:
    arrays = dict(np.load(recorded / "run.npz"))
    arrays[name] = arrays[name][:-1]
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(TraceError, match=f"'{name}': expected .* numbers, got shape"):
        load_history(tmp_path / "bad.npz")


def bomb(depth: int) -> bytes:
    return b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."


@pytest.mark.parametrize("data", [
    b"\x80\x04Kr\x01\x00\x00\x00\x00.", b"\x80\x04}r\xff\xff\xff\x7f.", b"\x80\x04}r\x00\x00\x00\x20.",
    bomb(100_000),
    b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.", b"\x80\x04G\x7f\xf0\x00\x00\x00\x00\x00\x00.",
    b"\x80\x04}\x8c\rdevice_traces]]}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeG\x7f\xf0\x00\x00\x00\x00\x00\x00"
    b"\x8c\x04addrK\x01uaas.",
])
@pytest.mark.parametrize("read", [load_trace, load_history])
def test_a_pickle_cannot_ask_for_more_than_its_size_justifies(tmp_path: Path, read: Any, data: bytes) -> None:
    (tmp_path / "bomb.pickle").write_bytes(data)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(TraceError):
        read(tmp_path / "bomb.pickle")
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.parametrize("read", [load_trace, load_history])
def test_an_npz_cannot_unpack_to_more_than_its_size_justifies(tmp_path: Path, read: Any) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as packed, packed.open("op.npy", "w") as op:
        for _ in range(300):
            op.write(bytes(1 << 20))
    with pytest.raises(TraceError, match="it unpacks to 314572800 bytes, and at most"):
        read(tmp_path / "bomb.npz")


def test_a_trace_of_many_streams_is_read_and_not_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    ids = np.arange(300)
    np.savez(tmp_path / "many.npz", op=np.repeat([0, 1], 300), id=np.tile(ids, 2), size=np.full(600, 64),
             stream=np.tile(ids, 2))
    assert load_trace(tmp_path / "many.npz").streams == len(load_history(tmp_path / "many.npz").streams) == 300
    assert cli.main(["replay", str(tmp_path / "many.npz")]) == 2
    assert "300 streams; at most 64 can be replayed" in capsys.readouterr().err
