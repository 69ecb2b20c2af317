"""The example service as a process: its routes, a load with faults, overload, and its end."""

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
from pathlib import Path
from typing import Any

import pytest

for wanted in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(wanted)

pytestmark = pytest.mark.subprocess_heavy
APP = Path(__file__).parents[2] / "examples/serving/app.py"
TEXT = "the quick brown fox jumps over the lazy dog " * 5


class Client:
    """A server's process, and requests to it."""

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
        """That many requests which the server finds all at once: it sleeps until they are sent."""
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
        """Requests of changing lengths from several threads; what they were answered."""
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
        """Send SIGTERM and wait; what the server wrote."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=300)[0]


@pytest.fixture
def serve() -> Iterator[Callable[..., Client]]:
    """Starts a server with arguments and an environment; ends those that run."""
    started: list[subprocess.Popen[str]] = []

    def launched(*arguments: str, **environment: str) -> Client | None:
        """A server that answers; None if somebody took its port meanwhile."""
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


@pytest.mark.parametrize("page", ["README.md", "docs/serving.md"])
def test_what_the_documents_type(serve: Callable[..., Client], page: str) -> None:
    text = (APP.parents[2] / page).read_text()
    (options,) = re.findall(r"python examples/serving/app\.py --port 8000 ([^&\n]+)", text)
    ((body, path),) = re.findall(r"curl -d '(.+)' localhost:8000(\S+)", text)
    status, _, said = serve(*options.split()).ask("POST", path, json.loads(body))
    assert (status, len(json.loads(said)) > 0) == (200, True), said


def test_the_routes(serve: Callable[..., Client]) -> None:
    server = serve("--limit", "64MiB")
    status, _, text = server.embed("hello")
    assert (status, len(json.loads(text)["embedding"]), json.loads(text)["length"]) == (200, 64, 5)
    assert server.ask("GET", "/healthz")[::2] == (200, '{"state":"ok"}')
    metrics = server.ask("GET", "/metrics")[2]
    assert 'serving_requests_total{event="answered"} 1.0' in metrics
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
def test_a_bad_request_is_400(serve: Callable[..., Client], body: Any) -> None:
    server = serve()
    status, _, text = server.ask("POST", "/v1/embeddings", body)
    assert (status, "expected" in text) == (400, True)


@pytest.mark.parametrize(("arguments", "text"), [
    (["--limit", "much"], "limit"), (["--lanes", "0"], "lanes must be an int of at least 1, not 0"),
])
def test_an_option_that_makes_no_sense_is_named(arguments: list[str], text: str) -> None:
    done = subprocess.run([sys.executable, str(APP), *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert text in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_a_load_with_faults_loses_nothing(serve: Callable[..., Client]) -> None:
    faults = ("aclrtMallocPhysical:p=0.4:seed=5,aclmdlExecuteAsync:p=0.02:seed=6:code=507899,"
              "aclrtSynchronizeStream:p=0.02:seed=7:code=507015")
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


def test_overload_is_answered(serve: Callable[..., Client]) -> None:
    server = serve("--queue", "2", "--lanes", "1", "--batch", "1", "--layers", "6")   # slower than its door
    found = server.burst(64) + server.burst(64)
    assert set(found) == {200, 429}
    assert found.total() == 128
    counts = json.loads(server.ask("GET", "/memory")[2])["engine"]["counts"]
    assert (counts["answered"], counts["refused_queue"]) == (found[200], found[429])
    server.stop()


def test_the_end_answers_what_was_accepted(serve: Callable[..., Client]) -> None:
    server = serve("--lanes", "1", "--batch", "1", "--queue", "1000")
    found: Counter[Any] = Counter()

    def ask() -> None:
        found[server.embed(TEXT)[0]] += 1

    threads = [threading.Thread(target=ask) for _ in range(40)]
    for one in threads:
        one.start()
    deadline = time.monotonic() + 60
    while json.loads(server.ask("GET", "/memory")[2])["engine"]["counts"].get("accepted", 0) < 40:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    assert server.stop() == ""
    for one in threads:
        one.join()
    assert found == {200: 40}
