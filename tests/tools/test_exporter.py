"""`aclpool exporter`: one page with the metrics of all services, over the sockets of `top`."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.child import child_environment
from support.top_peer import answering

import acl
from acl.inside import _top
from acl.tools import cli, exporter
from acl.tools.top import sample as top_sample

MIB = 1 << 20
SERVICE = """
import sys, acl
pool = acl.Pool(device=0, limit="64MiB", name="llm")
kept = pool.alloc("3MiB", tag='kv "cache" \\\\ 2')
print(pool.stats().reserved, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def service(folder: Path, **environment: str) -> Iterator[tuple[int, int]]:
    """Start a process with one pool; yield the process id and the pool's reserved bytes."""
    child = subprocess.Popen(
        [sys.executable, "-c", SERVICE], text=True, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=child_environment(ACL_POOL_TOP="1", ACL_POOL_TOP_DIR=str(folder), **environment))
    assert child.stdout is not None
    try:
        yield child.pid, int(child.stdout.readline())
    finally:
        child.communicate(timeout=300)


def document(*metrics: Any, **changes: Any) -> dict[str, Any]:
    """Return an answer to the word `metrics`."""
    return {**_top.FORMAT, "pid": 7, "worker": "w", "metrics": list(metrics)} | changes


def gauge(name: str = "aclpool_spare_bytes", value: Any = 1, kind: str = "gauge", **labels: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "description": "Text.", "unit": "By",
            "points": [{"attributes": labels, "value": value}]}


@pytest.mark.subprocess_heavy
def test_page_of_two_services_has_each_metric_once_with_their_labels(folder: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    with service(folder, ACL_POOL_WORKER="first") as (one, reserved), service(folder, ACL_POOL_WORKER="") as (two, _):
        text, answered = exporter.page()
    assert answered == 2
    samples = [found for family in parser.text_string_to_metric_families(text) for found in family.samples]
    held = {found.labels["process"]: found for found in samples if found.name == "aclpool_reserved_bytes"}
    assert held.keys() == {str(one), str(two)}
    assert held[str(one)].labels == {"process": str(one), "worker": "first", "pool": "llm", "device": "0"}
    assert held[str(one)].value == reserved
    assert held[str(two)].labels["worker"] == str(two)
    tagged = [found for found in samples if found.name == "aclpool_live_bytes" and found.labels["tag"]]
    assert {(found.labels["tag"], found.value) for found in tagged} == {('kv "cache" \\ 2', 3 * MIB + 512)}
    last = [found for found in samples if found.name == "aclpool_allocation_size_bytes_bucket"
            and found.labels["le"] == "+Inf"]
    assert [found.value for found in last] == [1.0, 1.0]
    lines = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(lines) == len(set(lines)) == len(acl.metrics.METRICS) + 2


@pytest.mark.subprocess_heavy
def test_port_zero_serves_on_a_free_port_and_ends_by_ctrl_c(folder: Path) -> None:
    child = subprocess.Popen([sys.executable, "-m", "aclpool", "exporter", "--port", "0"], text=True, cwd="/",
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env=child_environment(ACL_POOL_TOP_DIR=str(folder)))
    assert child.stdout is not None
    assert select.select([child.stdout], [], [], 300)[0], "no address was printed"
    host = child.stdout.readline().split("/")[2]
    with answering(folder, json.dumps(document(gauge(pool="p"))).encode()):
        answers = []
        for path in ("/metrics", "/other"):
            connection = http.client.HTTPConnection(host, timeout=300)
            connection.request("GET", path)
            got = connection.getresponse()
            answers.append((got.status, got.getheader("Content-Type"), got.read().decode()))
            connection.close()
    child.send_signal(2)
    _, error = child.communicate(timeout=300)
    assert (child.returncode, error.strip()) == (130, "aclpool: interrupted")
    (status, kind, text), (missing, _, _) = answers
    assert (status, kind, missing) == (200, exporter.CONTENT_TYPE, 404)
    assert 'aclpool_spare_bytes{process="7",worker="w",pool="p"} 1\n' in text


@pytest.mark.parametrize("said", [
    document(gauge(name="evil{} 1\n")), document(gauge(kind="summary")), document(gauge(value="1")),
    document(gauge(value=True)), document(gauge(value=float("nan"))), document(gauge(**{"a b": "c"})),
    document(gauge(tag=5)), document(pid="7"), document(version=2), document(5), document(metrics=None), [], None,
    document({"name": "aclpool_x", "kind": "histogram", "description": "", "points": [
        {"attributes": {}, "count": 1, "sum": 1, "explicit_bounds": [1], "bucket_counts": [1]}]}),
])
def test_answer_with_a_wrong_value_is_counted_as_silent(folder: Path, said: Any) -> None:
    with answering(folder, json.dumps(said).encode()):
        text, answered = exporter.page()
    assert answered == 0
    assert "aclpool_exporter_processes 0\n" in text and "aclpool_exporter_silent_processes 1\n" in text
    assert not [line for line in text.splitlines() if not line.startswith(("#", "aclpool_exporter_"))]


def test_texts_of_services_cannot_make_lines_of_the_page(folder: Path) -> None:
    with answering(folder, json.dumps(document(gauge(tag='a"\n\\'), worker='w"\n')).encode()):
        text, _ = exporter.page()
    assert 'aclpool_spare_bytes{process="7",worker="w\\"\\\\x0a",tag="a\\"\\\\x0a\\\\"} 1\n' in text


def test_metric_of_two_kinds_keeps_the_first(folder: Path) -> None:
    with (answering(folder, json.dumps(document(gauge(tag="a"))).encode()),
          answering(folder, json.dumps(document(gauge(tag="b", kind="counter"))).encode(), 1)):
        text, answered = exporter.page()
    assert answered == 2
    assert text.count("# TYPE aclpool_spare_bytes") == 1
    assert ('tag="a"' in text) != ('tag="b"' in text)


def test_once_prints_the_page_and_tells_by_its_status_if_a_service_answered(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["exporter", "--once"]) == 1
    assert "aclpool_exporter_processes 0\n" in capsys.readouterr().out
    with answering(folder, json.dumps(document(gauge(pool="p"))).encode()):
        assert cli.main(["exporter", "--once"]) == 0
    assert 'pool="p"' in capsys.readouterr().out


def test_port_in_use_or_wrong_port_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert cli.main(["exporter", "--port", port]) == 1
    assert f"cannot listen on --host 127.0.0.1 --port {port}: " in capsys.readouterr().err
    assert cli.main(["exporter", "--port", "65536"]) == 2
    assert "--port: expected 0 to 65535, got 65536" in capsys.readouterr().err


def test_folder_of_another_user_is_refused_at_the_start(
        folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    folder.chmod(0o777)
    assert cli.main(["exporter", "--once"]) == 2
    assert f"aclpool exporter: {folder}: expected a folder" in capsys.readouterr().err


def test_folder_that_becomes_another_users_is_an_error_of_the_scrape(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with exporter.listening("127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        folder.chmod(0o777)
        connection = http.client.HTTPConnection(*server.server_address[:2], timeout=300)  # type: ignore[arg-type]
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 500
        connection.close()
        thread.join()
    assert "expected a folder" in capsys.readouterr().err


# ---- the service's side ----

def test_caller_without_a_word_gets_the_snapshot_and_an_unknown_word_an_error(folder: Path) -> None:
    with acl.serve_top() as server:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(server.path)
            assert json.loads(caller.makefile().read())["pools"] == _top.snapshot()["pools"]
        found = top_sample.exchange(Path(server.path), "reboot")
    assert found["error"] == "expected one of snapshot, metrics, trim, got 'reboot'"


def test_answer_of_a_service_that_reads_no_word_is_taken(folder: Path) -> None:
    path = folder / "1-0.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def run() -> None:
            caller = listener.accept()[0]
            with caller:
                select.select([caller], [], [], 300)    # wait until the word has arrived, but do not read it
                caller.sendall(b"[1]")

        thread = threading.Thread(target=run)
        thread.start()
        assert top_sample.exchange(path, "snapshot") == [1]
        thread.join()


def test_worker_name_is_taken_from_the_environment_or_is_the_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACL_POOL_WORKER", "w3")
    assert acl.metrics.worker_name() == "w3"
    monkeypatch.delenv("ACL_POOL_WORKER")
    assert acl.metrics.worker_name() == str(os.getpid())


def test_collector_with_process_labels_gives_them_to_each_point(monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("prometheus_client")
    monkeypatch.setenv("ACL_POOL_WORKER", "w3")
    registry = client.CollectorRegistry()
    acl.metrics.PrometheusCollector(registry, device=0, process_labels=True)
    acl.metrics.PrometheusCollector(registry, device=1)
    own = {"process": str(os.getpid()), "worker": "w3"}
    with acl.Pool(0, name="a"), acl.Pool(1, name="b"):
        for name, device in (("a", "0"), ("b", "1")):
            labels = {**own, "pool": name, "device": device}
            assert registry.get_sample_value("aclpool_reserved_bytes", labels) is not None
            assert registry.get_sample_value("aclpool_allocation_size_bytes_count", labels) == 0


def test_parser_of_the_command_has_its_options() -> None:
    top = argparse.ArgumentParser()
    exporter.add_parser(top.add_subparsers())
    chosen = top.parse_args(["exporter", "--host", "::1", "--port", "1"])
    assert (chosen.host, chosen.port, chosen.once) == ("::1", 1, False)
