"""`acl.serve_top` and `aclpool top`: which processes answer, which users may ask, and what is shown."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import pty
import select
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import acl
import acl.inside._top
from acl.inside._top import TopServer, check_folder, snapshot, top_folder
from acl.tools import cli
from acl.tools.top import sample as top_sample
from acl.tools.top.sample import Answer, PoolRates, Rates, ask, ask_all, rates_between, rates_of
from acl.tools.top.screen import Screen
from acl.tools.top.text import SORTS, Options, count, lines

MIB = 1 << 20
SERVICE = """
import sys, acl
pool = acl.Pool(device=0, limit="64MiB", name="llm")
kept = [pool.alloc("3MiB", tag="kv cache") for _ in range(4)]
try:
    pool.alloc("90MiB")
except acl.OutOfMemoryError:
    pass
print(pool.stats().reserved, flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        pool.alloc(1000).close()
    print("done", flush=True)
"""


@pytest.fixture
def server(folder: Path) -> Iterator[TopServer]:
    """Return a server of this process."""
    with acl.serve_top() as made:
        yield made


class Service:
    """A process with a server; `churn` makes it allocate."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "ACL_POOL_TOP": "1", "ACL_POOL_TOP_DIR": str(folder), "ACL_BACKEND": "sim"}
        self.process = subprocess.Popen([sys.executable, "-c", SERVICE], env=environment, text=True, cwd="/",
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.reserved = int(self.line())

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def churn(self, times: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{times}\n")
        self.process.stdin.flush()
        assert self.line() == "done\n"

    def end(self) -> tuple[str, str]:
        """End the process; return the rest of its output."""
        out, error = self.process.communicate(timeout=300)
        assert self.process.returncode == 0
        return out, error


@pytest.fixture
def service(folder: Path) -> Iterator[Service]:
    made = Service(folder)
    yield made
    assert made.end() == ("", "")
    assert list(folder.iterdir()) == []   # the ended process removed its socket


def pool_document(**changes: Any) -> dict[str, Any]:
    """Return a pool's part of a snapshot."""
    stream = {"stream": 0, "kind": "stream", "reserved": 8 * MIB, "allocated": 6 * MIB, "allocated_peak": 7 * MIB,
              "requested": 6 * MIB, "cached": MIB, "free": MIB, "waiting": 0, "largest_free": MIB, "live_blocks": 3,
              "hits": 80, "fits": 15, "slow": 5, "failures": 0, "frees": 97, "steals": 0, "donated": 0, "syncs": 0}
    streams = [stream | changes.pop("stream", {})]
    return {"name": "pool-0", "device": 0, "limit": 0, "reserved": 8 * MIB, "reserved_peak": 9 * MIB, "spare": 0,
            "allocated": 6 * MIB, "requested": 6 * MIB, "requested_peak": 7 * MIB, "ooms": 0, "driver_calls": 10,
            "tags": {"kv": 4 * MIB, "w": 2 * MIB, "none": 0}, "streams": streams, "last_oom": ""} | changes


def answer(pid: int, *pools: dict[str, Any], rates: dict[str, PoolRates] | None = None, **changes: Any) -> Answer:
    """Return the answer of a process with these pools."""
    device = {"device": 0, "total": 1 << 30, "free": 512 * MIB, "pools": sum(one["reserved"] for one in pools),
              "process": 0, "others": 0, "told_apart": True}
    document = {"pid": pid, "command": f"/usr/bin/python serve{pid}.py", "backend": "cann", "time": 1.0,
                "pools": list(pools), "devices": [device]} | changes
    return Answer(pid, document, rates or {})


def text_of(answers: list[Answer], **options: Any) -> str:
    return "\n".join(line.text for line in lines(answers, Options(**options)))


# ---- the service's side ----

def test_top_server_is_off_by_default(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", "import acl, threading, sys; print(threading.active_count(), "
                           "'acl.inside._top' in sys.modules)"], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == "1 False\n"
    assert list(folder.iterdir()) == []


def test_answer_of_the_top_server_equals_the_pool_statistics(server: TopServer) -> None:
    acl.Device(0).use()
    with acl.Pool(device=0, limit="32MiB", name="answers") as pool:
        kept = pool.alloc("3MiB", tag="kv")
        found = ask(Path(server.path))
        assert found is not None
        told = next(one for one in found["pools"] if one["name"] == "answers")
        stats = pool.stats()
        assert (found["pid"], found["backend"]) == (os.getpid(), acl.backend())
        for name in ("reserved", "allocated", "requested", "reserved_peak", "limit", "ooms", "tags"):
            assert told[name] == getattr(stats, name), name
        assert told["streams"][0]["live_blocks"] == 1
        assert told["driver_calls"] == sum(stats.driver_calls.values())
        ledger = acl.memory_ledger(0)
        device = next(one for one in found["devices"] if one["device"] == 0)
        assert (device["total"], device["pools"]) == (ledger.total, ledger.sum(owner="pool"))
        assert sum(device[name] for name in ("free", "pools", "process", "others")) == device["total"]
        kept.close()


def test_second_call_of_serve_returns_the_open_server(server: TopServer) -> None:
    assert acl.serve_top() is server
    server.close()
    server.close()
    assert not Path(server.path).exists()
    with acl.serve_top() as again:
        assert again is not server and ask(Path(again.path)) is not None


def test_many_callers_can_ask_the_top_server_concurrently(server: TopServer) -> None:
    found: list[Any] = []
    askers = [threading.Thread(target=lambda: found.append(ask(Path(server.path)))) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert len(found) == 8 and None not in found


def test_caller_that_hangs_up_does_not_disturb_the_top_server(server: TopServer) -> None:
    for _ in range(20):
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(server.path)
    assert ask(Path(server.path)) is not None


def test_caller_of_another_user_gets_no_answer(server: TopServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl.inside._top, "peer_of", lambda caller: os.geteuid() + 4242)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(server.path)
        assert caller.recv(1) == b""


def test_socket_of_the_top_server_is_accessible_to_its_user_only(server: TopServer) -> None:
    assert os.stat(server.path).st_mode & 0o777 == 0o600


def test_snapshot_of_a_lost_device_still_lists_the_pools(server: TopServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(ordinal: int) -> None:
        raise acl.AclError("lost")

    monkeypatch.setattr(acl.inside._top, "device_numbers", lost)
    acl.Device(0).use()
    with acl.Pool(device=0, name="left"):
        found = snapshot()
    assert found["devices"] == [] and "left" in [pool["name"] for pool in found["pools"]]


def test_a_folder_that_others_can_write_to_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="mode 777"):
        acl.serve_top()
    folder.chmod(0o700)


def test_socket_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PermissionError, match="got something else"):
        check_folder(tmp_path / "file")


def test_a_path_that_is_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_POOL_TOP_DIR", str(tmp_path / ("x" * 100)))
    with pytest.raises(ValueError, match="ACL_POOL_TOP_DIR to a shorter one"):
        acl.serve_top()


def test_socket_folder_is_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ACL_POOL_TOP_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert top_folder() == tmp_path / "aclpool"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert top_folder().name == f"aclpool-{os.getuid()}"


def test_service_starts_although_its_socket_cannot_be_made(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING, "acl.top"):
        acl.inside._top.serve_if_asked()
    assert "will not see this process" in caplog.text
    folder.chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_child_has_a_top_server_of_its_own(folder: Path) -> None:
    code = """
import os, acl
from pathlib import Path
from acl.tools.top.sample import ask
from acl.inside._top import Serving
server = acl.serve_top()
pool = acl.Pool(device=0, name="parents")
child = os.fork()
if child == 0:
    own = Serving.server
    found = ask(Path(own.path))
    good = own.path != server.path and found["pid"] == os.getpid() and found["pools"] == []
    own.close()
    os._exit(0 if good else 1)
print(os.waitpid(child, 0)[1], [one["name"] for one in ask(Path(server.path))["pools"]])
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300,
                          cwd="/")
    assert (done.stdout, done.stderr) == ("0 ['parents']\n", "")


# ---- asking ----

def test_running_service_is_shown_by_top(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--json", "--interval", "0"]) == 0
    process, = json.loads(capsys.readouterr().out)["processes"]
    pool, = process["pools"]
    assert process["pid"] == service.process.pid
    assert (pool["name"], pool["reserved"], pool["limit"], pool["ooms"]) == ("llm", service.reserved, 64 * MIB, 1)
    assert pool["tags"]["kv cache"] >= 12 * MIB
    assert "90.00 MiB could not be had" in pool["last_oom"]


def test_rates_shown_by_top_are_those_of_the_service(service: Service) -> None:
    before = ask_all()
    service.churn(5000)
    after, = rates_between(before, ask_all())
    seconds = after.document["time"] - before[0].document["time"]
    rates = after.rates["llm"]
    assert rates.allocations == pytest.approx(5000 / seconds)
    assert rates.ooms == 0 and rates.slow * seconds <= 1
    assert rates.hit_rate is not None and rates.hit_rate > 0.99


def test_top_prints_plain_text_without_a_terminal(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--interval", "0", "--pid", str(service.process.pid)]) == 0
    out = capsys.readouterr().out
    assert f"{service.process.pid}  llm" in out
    assert "device 0 simulated in" in out and "kv cache" in out and "last OOM: 90.00 MiB" in out


def test_top_without_a_service_says_how_to_start_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "--once"]) == 1
    assert "ACL_POOL_TOP=1" in capsys.readouterr().out
    assert cli.main(["top", "--json", "--pid", "1"]) == 1
    assert json.loads(capsys.readouterr().out) == {"processes": []}
    assert cli.main(["top", "--once", "--pid", "1", "--pid", "3", "--interval", "0"]) == 1
    assert "aclpool top: --pid: 1, 3 cannot be seen" in capsys.readouterr().err


def test_sockets_of_dead_processes_are_removed_and_others_stay(folder: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for pid in (gone.pid, os.getppid()):
        with socket.socket(socket.AF_UNIX) as left:   # a bound socket on which no process listens
            left.bind(str(folder / f"{pid}-aa.sock"))
    assert ask_all() == []
    assert [path.name for path in folder.iterdir()] == [f"{os.getppid()}-aa.sock"]


@pytest.mark.parametrize("said", [b"", b"{", b"[]", b'{"format": "aclpool top", "version": 2}'])
def test_answer_of_another_format_is_ignored_by_top(folder: Path, said: bytes) -> None:
    path = folder / f"{os.getppid()}-bb.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=lambda: say(listening, said))
        thread.start()
        assert ask_all() == []
        thread.join()


def say(listening: socket.socket, said: bytes) -> None:
    caller, _ = listening.accept()
    with caller:
        caller.sendall(said)


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["--sort", "size"], "--sort: expected one of reserved"), (["--interval", "-1"], "--interval: expected 0 to"),
])
def test_top_reports_wrong_arguments(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", *arguments]) == 2
    assert complaint in capsys.readouterr().err


# ---- numbers and text ----

def test_rates_between_two_snapshots() -> None:
    before = pool_document()
    counts = {"hits": 140, "fits": 21, "recalls": 10, "slow": 11, "failures": 2}
    after = pool_document(ooms=2, driver_calls=30, stream=counts)
    rates = rates_of(before, after, 2.0)
    own = {"allocations": 40.0, "slow": 3.0, "hit_rate": 0.75, "fast_rate": 0.925}
    assert rates == PoolRates(**own, driver_calls=10.0, ooms=2, streams={"stream 0x0": Rates(**own)})


def test_pool_started_again_has_no_negative_rates() -> None:
    rates = rates_of(pool_document(stream={"hits": 9000}), pool_document(), 1.0)
    assert rates == PoolRates(streams={"stream 0x0": Rates()})


@pytest.mark.parametrize(("sort", "order"), [
    ("reserved", ["big", "busy", "oomy"]), ("live", ["busy", "oomy", "big"]), ("alloc/s", ["busy", "oomy", "big"]),
    ("slow/s", ["oomy", "big", "busy"]), ("OOMs", ["oomy", "big", "busy"]), ("pid", ["oomy", "big", "busy"]),
])
def test_top_sorts_pools_by_the_chosen_column(sort: str, order: list[str]) -> None:
    answers = [
        answer(9, pool_document(name="busy", allocated=3), rates={"busy": PoolRates(allocations=7)}),
        answer(3, pool_document(name="oomy", allocated=2, reserved=1, ooms=4), rates={"oomy": PoolRates(slow=2)}),
        answer(5, pool_document(name="big", allocated=1, reserved=1 << 40)),
    ]
    text = text_of(answers, sort=sort, unfold=False)
    assert sorted(order, key=text.index) == order
    assert set(SORTS) == {"reserved", "live", "alloc/s", "slow/s", "OOMs", "pid"}


def test_a_device_line_adds_up_over_processes() -> None:
    answers = [answer(1, pool_document(reserved=128 * MIB)), answer(2, pool_document(reserved=256 * MIB))]
    first = text_of(answers, unicode=False).splitlines()[0]
    assert "1.00 GiB: pools 384.00 MiB, other 128.00 MiB, free 512.00 MiB" in first
    assert first.split()[2] == "#" * 9 + "=" * 3 + "." * 12


def test_folding_hides_streams_and_tags() -> None:
    whole, folded = text_of([answer(1, pool_document())]), text_of([answer(1, pool_document())], unfold=False)
    assert "default stream" in whole and " kv " in whole and "none" not in whole
    assert "default stream" not in folded and " kv " not in folded


def test_top_marks_an_out_of_memory_in_the_last_interval_as_an_alarm() -> None:
    shown = lines([answer(1, pool_document(ooms=3), rates={"pool-0": PoolRates(ooms=1)})], Options())
    assert [line.style for line in shown if line.text.lstrip().startswith("1  pool-0")] == ["alarm"]


def test_top_lines_are_not_wider_than_the_terminal() -> None:
    shown = lines([answer(1, pool_document(last_oom="x" * 500))], Options(width=60), "title " * 30)
    assert max(len(line.text) for line in shown) <= 60


@pytest.mark.parametrize(("answers", "words"), [
    ([], "0 processes, 0 pools"), ([answer(1)], "1 process, 0 pools"),
    ([answer(1, pool_document())], "1 process, 1 pool"),
    ([answer(1, pool_document(), pool_document()), answer(2)], "2 processes, 2 pools"),
])
def test_the_title_counts_in_english(answers: list[Answer], words: str) -> None:
    screen = Screen.__new__(Screen)
    screen.answers, screen.options, screen.interval, screen.paused = answers, Options(), 1.0, False
    assert f"  {words}  every 1 s  " in screen.title()


def test_processes_without_a_pool_are_counted_only() -> None:
    assert text_of([answer(1), answer(2)]) == "2 processes without a pool"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.25, "0.2"), (12, "12"), (4500, "4.5k"), (1.2e6, "1.2M")])
def test_top_writes_counts_in_short_form(value: float, text: str) -> None:
    assert count(value) == text


# ---- the screen ----

class Terminal:
    """`aclpool top` in its own terminal."""

    def __init__(self, rows: int, columns: int) -> None:
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
            os.environ["TERM"] = "xterm"
            os.chdir("/")
            os.execv(sys.executable, [sys.executable, "-m", "aclpool", "top", "--interval", "0.2"])
        self.said = b""

    def until(self, text: bytes, seconds: float = 60) -> None:
        """Read until `text` was drawn."""
        deadline = time.monotonic() + seconds
        while text not in self.said:
            assert time.monotonic() < deadline, (text, self.said[-2000:])
            if select.select([self.handle], [], [], 0.1)[0]:
                self.said += os.read(self.handle, 65536)

    def press(self, key: bytes) -> None:
        self.said = b""
        os.write(self.handle, key)

    def end(self) -> int:
        """Press q and return the exit status."""
        self.press(b"q")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.handle)
                return os.waitstatus_to_exitcode(status)
            if select.select([self.handle], [], [], 0.05)[0]:
                try:
                    os.read(self.handle, 65536)
                except OSError:
                    pass
        raise TimeoutError("aclpool top did not end")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_top_screen_reacts_to_its_keys(service: Service) -> None:
    terminal = Terminal(40, 160)
    terminal.until(b"kv cache")
    terminal.until(b"by reserved")
    terminal.press(b"s")
    terminal.until(b"live")
    terminal.press(b"p")
    terminal.until(b"paused")
    terminal.press(b"p")
    terminal.until(b"every")
    terminal.press(b"t")
    service.churn(3000)
    assert terminal.end() == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_tiny_terminal_shows_what_fits(service: Service) -> None:
    terminal = Terminal(4, 12)
    terminal.until(b"aclpool")
    for key in (b"\x1b[B", b"\x1b[6~", b"t", b"+", b"-"):
        os.write(terminal.handle, key)
    time.sleep(0.3)
    assert terminal.end() == 0


# ---- wrong answers of other processes


EVIL = "\x1b]0;pwned\x07\x1b[2J\nrow\0"


def replying(folder: Path, reply: Any) -> socket.socket:
    """Return a socket in the folder that sends `reply` to each client."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / f"{os.getpid()}-0.sock"))
    listener.listen()

    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller = listener.accept()[0]
                with caller, contextlib.suppress(OSError):
                    reply(caller)

    threading.Thread(target=run, daemon=True).start()
    return listener


def test_top_shows_text_of_services_without_control_characters(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = answer(1, pool_document(name=f"p{EVIL}", tags={f"t{EVIL}": MIB}, last_oom=EVIL, stream={"kind": EVIL}),
                  command=f"/bin/{EVIL}", backend=EVIL).document | top_sample.FORMAT
    with replying(folder, lambda caller: caller.sendall(json.dumps(evil).encode())):
        assert cli.main(["top", "--once"]) == 0
    shown = capsys.readouterr().out
    assert "\\x1b[2J" in shown and not set(shown) & set("\x1b\x07\0")
    assert all("row" not in line[:4] for line in shown.splitlines())


@pytest.mark.parametrize("changes", [
    {"pid": "x"}, {"pools": None}, {"pools": [{}]}, {"pools": [5]}, {"time": "z"}, {"time": float("nan")},
    {"devices": 5},
    {"pools": [pool_document(reserved="a")]}, {"pools": [pool_document(reserved=float("inf"))]},
    {"pools": [pool_document(tags=[])]}, {"pools": [pool_document(tags={"a": -1})]}, {"command": 5},
    {"pools": [pool_document(stream={"hits": None})]}, {"pools": [pool_document(name=None)]},
])
def test_answer_with_a_wrong_value_is_ignored_by_top(folder: Path, changes: dict[str, Any]) -> None:
    document = answer(1, pool_document()).document | top_sample.FORMAT
    wrong = json.dumps(document | changes).encode()
    with replying(folder, lambda caller: caller.sendall(wrong)):
        assert ask_all() == []


@pytest.mark.parametrize("reply", [b"[" * 200_000, b'{"a":' * 50_000, b"9" * 5000], ids=["lists", "tables", "digits"])
def test_answer_that_is_deeply_nested_or_long_is_ignored_by_top(folder: Path, reply: bytes) -> None:
    with replying(folder, lambda caller: caller.sendall(reply)):
        assert ask_all() == []


@pytest.mark.parametrize("part", [b" ", b'"' + b"A" * (1 << 20)], ids=["drips", "floods"])
def test_endless_answer_is_abandoned_by_top(folder: Path, part: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_sample, "ASK_SECONDS", 1.0 if len(part) == 1 else 60)
    monkeypatch.setattr(top_sample, "MOST_BYTES", 8 << 20)

    def endless(caller: socket.socket) -> None:
        while True:
            caller.sendall(part)
            time.sleep(0.01)

    with replying(folder, endless):
        assert ask_all() == []


def test_another_users_folder_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    if os.stat(folder).st_uid == 0:             # a folder of root is trusted
        os.chown(folder, 4243, -1)
    with pytest.raises(PermissionError, match="expected a folder of user 4242"):
        ask_all()
    assert cli.main(["top", "--once"]) == 2
    assert "expected a folder of user 4242" in capsys.readouterr().err


def test_top_server_survives_a_temporary_lack_of_file_descriptors(
    server: TopServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, failures = server.socket.accept, iter([OSError(24, "Too many open files")] * 3)

    class Socket:
        def accept(self) -> Any:
            for error in failures:
                raise error
            return accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    real = server.socket
    monkeypatch.setattr(server, "socket", Socket())
    assert ask(Path(server.path)) is not None   # answered by an `accept` that was called before the patch
    assert ask(Path(server.path)) is not None
    monkeypatch.undo()
    assert list(failures) == [] and server.thread.is_alive()


@pytest.mark.subprocess_heavy
def test_children_of_multiprocessing_leave_no_sockets(folder: Path) -> None:
    code = """
import multiprocessing, os, sys
import acl
if __name__ == "__main__":
    for _ in range(4):
        child = multiprocessing.get_context("fork").Process(target=len, args=("",))
        child.start()
        child.join()
    print(len(os.listdir(os.environ["ACL_POOL_TOP_DIR"])))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "ACL_POOL_TOP": "1", "ACL_BACKEND": "sim"}, cwd="/")
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_sockets_of_dead_processes_are_removed_when_a_service_starts(folder: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (folder / f"{dead.pid}-0.sock").touch()
    with acl.serve_top() as made:
        assert [str(path) for path in folder.iterdir()] == [made.path]


def test_variable_no_color_is_respected_by_top(monkeypatch: pytest.MonkeyPatch) -> None:
    import curses

    monkeypatch.setattr(curses, "start_color", lambda: pytest.fail("colours"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert Screen.make_styles()["alarm"] == curses.A_BOLD
