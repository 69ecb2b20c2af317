"""The example service as a process: its routes, a load with faults, overload, and its exit."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

for wanted in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(wanted)

pytestmark = pytest.mark.subprocess_heavy
APP = Path(__file__).parents[2] / "examples/serving/app.py"
TEXT = "the quick brown fox jumps over the lazy dog " * 5


class Client:
    """The process of a server, and requests to it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()
        finally:
            connection.close()

    def embed(self, text: str) -> tuple[int, dict[str, str], str]:
        return self.ask("POST", "/v1/embeddings", {"input": text})

    def burst(self, count: int) -> Counter[int]:
        """Send `count` requests while the server's process is stopped, so that it finds all of them at once.

        Return how often each status was answered.
        """
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            waiting = [http.client.HTTPConnection("127.0.0.1", self.port, timeout=300) for _ in range(count)]
            for connection in waiting:
                connection.request("POST", "/v1/embeddings", json.dumps({"input": TEXT}))
        finally:
            os.kill(self.process.pid, signal.SIGCONT)
        found: Counter[int] = Counter()
        for connection in waiting:
            answer = connection.getresponse()
            answer.read()
            found[answer.status] += 1
            assert answer.status == 200 or answer.getheader("retry-after") == "1"
            connection.close()
        return found

    def load(self, threads: int, each: int) -> Counter[int]:
        """Send requests of changing lengths, `each` from every thread; return how often each status was answered."""
        found: Counter[int] = Counter()

        def work(seed: int) -> None:
            for number in range(each):
                length = 5 + (seed * 37 + number * 61) % 190
                found[self.embed(TEXT[:length])[0]] += 1

        running = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
        for one in running:
            one.start()
        for one in running:
            one.join()
        return found

    def stop(self) -> str:
        """Send SIGTERM, wait for the exit, and return what the server wrote."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=300)[0]


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    """Yield a function that starts a server; at the end, end the servers that still run."""
    started: list[subprocess.Popen[str]] = []

    def launched(*arguments: str, **environment: str) -> Client | None:
        """Start a server and wait until it answers; return None if another process has taken its port."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, str(APP), "--port", str(port), "--layers", "1", *arguments]
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        started.append(process)
        client = Client(process, port)
        for _ in range(2400):
            if process.poll() is not None:
                said = process.communicate()[0]
                assert "address already in use" in said, said
                return None
            try:
                client.ask("GET", "/healthz")
                return client
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def start(*arguments: str, **environment: str) -> Client:
        found = (launched(*arguments, **environment) for _ in range(5))
        return next(client for client in found if client is not None)

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_commands_of_the_serving_page_work(serve: Callable[..., Client]) -> None:
    text = (APP.parents[2] / "docs/serving.md").read_text()
    (options,) = re.findall(r"python examples/serving/app\.py --port 8000 ([^&\n]+)", text)
    ((body, path),) = re.findall(r"curl -d '(.+)' localhost:8000(\S+)", text)
    status, _, said = serve(*options.split()).ask("POST", path, json.loads(body))
    assert (status, len(json.loads(said)) > 0) == (200, True), said


def test_service_routes_answer_as_documented(serve: Callable[..., Client]) -> None:
    server = serve("--limit", "64MiB")
    status, _, text = server.embed("hello")
    assert (status, len(json.loads(text)["embedding"]), json.loads(text)["length"]) == (200, 64, 5)
    status, _, said = server.ask("GET", "/healthz")
    assert (status, json.loads(said)["state"]) == (200, "ok")
    assert [lane["state"] for lane in json.loads(said)["lanes"]] == ["working"] * 2
    metrics = server.ask("GET", "/metrics")[2]
    assert 'aclpool_serving_requests_total{event="answered",model="text"} 1.0' in metrics
    assert 'aclpool_reserved_bytes{device="0",pool="serving"} 2.097152e+06' in metrics
    picture = json.loads(server.ask("GET", "/memory")[2])
    assert sum(row["bytes"] for row in picture["ledger"]["rows"]) == picture["ledger"]["total"]
    assert picture["engine"]["counts"]["answered"] == 1
    status, headers, page = server.ask("GET", "/memory", accept="text/html")
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/html")
    assert "memory is" in page
    assert (headers["cache-control"], headers["vary"]) == ("no-store", "Accept")
    assert server.stop() == ""
    assert server.process.returncode in (0, -signal.SIGTERM)


@pytest.mark.parametrize("body", [{"inputs": "x"}, {"input": ""}, {"input": 5}, [], {"input": "x" * 600}])
def test_bad_request_is_answered_with_status_400(serve: Callable[..., Client], body: Any) -> None:
    server = serve()
    status, _, text = server.ask("POST", "/v1/embeddings", body)
    assert (status, "expected" in text) == (400, True)


def post(server: Client, body: bytes) -> tuple[int, str]:
    """Post any bytes as a body; return the status and the reason."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    connection.request("POST", "/v1/embeddings", body)
    answer = connection.getresponse()
    text = json.load(answer).get("error", "")
    connection.close()
    return answer.status, text


def test_wrong_request_body_is_answered_with_the_reason(serve: Callable[..., Client]) -> None:
    server = serve()
    for body, reason in (
        (b"", "no JSON"), (b"hello", "no JSON"), (b"[1]", "a JSON object was expected, not list"),
        (b"{}", "'input' is missing"), (b'{"input": 5}', "input must be a string, not int"),
        (b"[" * 50_000, "nested too deeply"), (b'{"a":' * 10_000, "nested too deeply"),
        (b'{"input": "\\ud800"}', "surrogates not allowed"), (b'{"input": "\xff"}', "no JSON"),
        (b'{"input": %s}' % (b"9" * 5000), "no JSON"), (b'{"input": NaN}', "not float"),
    ):
        status, text = post(server, body)
        assert (status, reason in text) == (400, True), (body[:20], status, text)
    assert post(server, b'{"input": "hello"}') == (200, "")
    assert server.stop() == ""


def test_request_body_that_is_too_large_is_not_stored(serve: Callable[..., Client]) -> None:
    server = serve()
    assert post(server, b" " * (1 << 16))[0] == 400
    assert post(server, b" " * (1 + (1 << 16))) == (413, "expected a body of at most 65536 bytes")

    def resident() -> int:
        return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, total = resident(), 256 << 20
    with socket.create_connection(("127.0.0.1", server.port), 300) as big:
        big.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % total)
        try:
            for _ in range(total >> 20):
                big.sendall(bytes(1 << 20))
        except OSError:
            pass                                # the server closed the connection, as it should
        else:
            raise AssertionError("the server took all of it")
    assert resident() - before < total // 4
    assert server.embed("hello")[0] == 200
    server.stop()


def test_service_on_a_port_in_use_ends_with_a_message_of_one_line(serve: Callable[..., Client]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, str(APP), "--port", str(port)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (1, f"app.py: cannot listen on 127.0.0.1:{port}: address already in use\n")


def test_histograms_of_latency_and_queueing(serve: Callable[..., Client]) -> None:
    server = serve()
    for _ in range(3):
        server.embed("hello")
    metrics = server.ask("GET", "/metrics")[2]
    for name in ("aclpool_serving_queue_seconds", "aclpool_serving_latency_seconds"):
        assert f'{name}_bucket{{le="+Inf",model="text"}} 3.0' in metrics
        assert f'{name}_count{{model="text"}} 3.0' in metrics
        assert float(re.findall(rf'^{name}_sum{{model="text"}} (\S+)$', metrics, re.M)[0]) > 0
    assert 'aclpool_serving_lanes{state="ended"} 0.0' in metrics
    server.stop()


def requests_accepted(server: Client, count: int) -> tuple[Counter[int], list[threading.Thread]]:
    """Send `count` requests, each from its own thread, and wait until the service has accepted all of them.

    Return the threads too, and how often each status was answered; the threads still update these counts.
    """
    found: Counter[int] = Counter()

    def ask() -> None:
        found[server.embed(TEXT)[0]] += 1

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for one in threads:
        one.start()
    deadline = time.monotonic() + 60
    while json.loads(server.ask("GET", "/memory")[2])["engine"]["counts"].get("accepted", 0) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found, threads


def test_service_ends_after_its_grace_period(serve: Callable[..., Client]) -> None:
    server = serve("--grace", "0", "--layers", "8", "--lanes", "1", "--batch", "1", "--queue", "1000")
    found, threads = requests_accepted(server, 40)
    said = server.stop()
    for one in threads:
        one.join(300)
    assert found.total() == 40 and set(found) <= {200, 503}
    assert "Traceback" not in said, said


def test_second_ctrl_c_ends_the_service_without_a_traceback(serve: Callable[..., Client]) -> None:
    server = serve("--layers", "40")
    found: Counter[int] = Counter()
    thread = threading.Thread(target=lambda: found.update([server.embed(TEXT)[0]]))
    thread.start()
    deadline = time.monotonic() + 60
    while not json.loads(server.ask("GET", "/memory")[2])["engine"]["counts"].get("accepted", 0):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.process.send_signal(signal.SIGINT)
    with suppress(OSError):                     # raised if the server has stopped listening
        while server.ask("GET", "/healthz")[0] == 200:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    server.process.send_signal(signal.SIGINT)
    said = server.process.communicate(timeout=300)[0]
    thread.join(300)
    assert (server.process.returncode, "Traceback" in said) == (130, False), said
    assert found[200] + found[503] == 1


@pytest.mark.parametrize(("arguments", "text"), [
    (["--port", "70000"], "a port is a number of 0 to 65535, not '70000'"), (["--grace", "-1"], "seconds are a number"),
    (["--limit", "much"], "limit"), (["--lanes", "0"], "lanes must be an int of at least 1, not 0"),
])
def test_service_names_an_impossible_option(arguments: list[str], text: str) -> None:
    done = subprocess.run([sys.executable, str(APP), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert text in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_load_with_device_faults_loses_no_request(serve: Callable[..., Client]) -> None:
    # 320 requests, eight at a time, are at least 40 batches, so every=10 fails several of them.
    faults = ("aclrtMallocPhysical:p=0.4:seed=5,aclmdlExecuteAsync:every=10:code=507899,"
              "aclrtSynchronizeStreamWithTimeout:p=0.02:seed=7:code=507015")
    server = serve("--limit", "32MiB", ACL_SIM_FAULTS=faults)
    assert server.load(8, 20) == {200: 160}
    first = json.loads(server.ask("GET", "/memory")[2])
    assert server.load(8, 20) == {200: 160}
    counts = json.loads(server.ask("GET", "/memory")[2])
    assert counts["engine"]["counts"]["answered"] == 320
    assert counts["engine"]["counts"]["faults"] > 0
    assert counts["pool"]["reserved"] <= max(first["pool"]["reserved"] + (4 << 20), 32 << 20)
    assert counts["engine"]["promised"] == 0
    server.stop()


def test_requests_beyond_the_queue_are_answered_with_status_429(serve: Callable[..., Client]) -> None:
    server = serve("--queue", "2", "--lanes", "1", "--batch", "1", "--layers", "6")   # slow enough to fill its queue
    found = server.burst(64) + server.burst(64)
    assert set(found) == {200, 429}
    assert found.total() == 128
    counts = json.loads(server.ask("GET", "/memory")[2])["engine"]["counts"]
    assert (counts["answered"], counts["refused_queue"]) == (found[200], found[429])
    server.stop()


def test_service_that_ends_answers_all_accepted_requests(serve: Callable[..., Client]) -> None:
    server = serve("--lanes", "1", "--batch", "1", "--queue", "1000")
    found, threads = requests_accepted(server, 40)
    assert server.stop() == ""
    for one in threads:
        one.join()
    assert found == {200: 40}
