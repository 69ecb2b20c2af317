"""The example service under the load of an asyncio client: model swaps, faults, and a second process that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app import application
from support.child import child_environment
from support.http_server import served
from task import TextTask

from acl.serving import Engine, Options

pytestmark = pytest.mark.subprocess_heavy
TASK = TextTask(layers=1)
SYNC = "aclrtSynchronizeStreamWithTimeout"
APP = Path(__file__).parents[2] / "examples/serving/app.py"


async def one(port: int, length: int) -> int:
    """Send a request on a new connection; return the status, 0 if the server closed the connection."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return 0
    body = json.dumps({"input": "x" * length}).encode()
    writer.write(b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body), body))
    try:
        answer = await reader.read()
    except OSError:
        return 0
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]) if answer else 0


def load(port: int, clients: int, each: int) -> Counter[int]:
    """Run clients that each send requests one after the other; return how often `one` returned each status."""
    found: Counter[int] = Counter()

    async def client(seed: int) -> None:
        for number in range(each):
            found[await one(port, 5 + (seed * 37 + number * 61) % 190)] += 1

    async def main() -> None:
        await asyncio.gather(*map(client, range(clients)))

    asyncio.run(main())
    return found


@pytest.fixture
def service() -> Iterator[tuple[Engine, int]]:
    """Yield an engine with three lanes, and the port of its server."""
    engine = Engine(Options(limit="64MiB", lanes=3))
    engine.load("text", TASK, instances=3)
    with served(application(engine, TASK)) as port:
        yield engine, port


def test_swaps_and_faults_under_load_lose_no_request(service: tuple[Engine, int], sim: Any) -> None:
    engine, port = service
    found: list[Counter[int]] = []
    clients = threading.Thread(target=lambda: found.append(load(port, 12, 15)))
    with sim.fault(SYNC, every=15, code=507015), sim.fault("aclrtMallocPhysical", p=0.2, seed=3):
        clients.start()
        for _ in range(3):
            engine.load("text", TASK, instances=3)
        clients.join(300)
    assert found == [{200: 180}]
    counts = engine.counts
    assert (counts["answered"], counts["failed"], counts["loads"]) == (180, 0, 4) and counts["faults"] > 0
    assert engine.health().state == "ok" and engine.promised == 0 and engine.retired == []


def server_on(card: Path, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start the example service on a shared simulated card; return the process and its port."""
    code = f"""
        import sys
        sys.path.insert(0, {str(APP.parent)!r})
        import app
        made = app.listening
        def listening(host, port):
            door = made(host, 0)
            print(door.getsockname()[1], flush=True)
            return door
        app.listening = listening
        app.main({list(arguments)!r})
    """
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(line[8:] for line in code.splitlines())], text=True, stdout=subprocess.PIPE,
        env=child_environment(ACL_SIM_SHARED=str(card)), cwd="/")
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_service_goes_on_when_its_neighbour_is_killed(tmp_path: Path) -> None:
    options = ("--layers", "1", "--limit", "64MiB")
    processes = [server_on(tmp_path / "card", *options) for _ in range(2)]
    try:
        (killed, its_port), (left, port) = processes
        found: list[Counter[int]] = []
        clients = [threading.Thread(target=lambda at=at: found.append(load(at, 6, 30))) for at in (its_port, port)]
        for thread in clients:
            thread.start()
        os.kill(killed.pid, signal.SIGKILL)
        for thread in clients:
            thread.join(300)
        assert {200: 180} in found and any(each[0] for each in found)
        killed.wait(300)
        processes.append(server_on(tmp_path / "card", *options))
        assert load(processes[2][1], 4, 5) == {200: 20} and load(port, 4, 5) == {200: 20}
        left.send_signal(signal.SIGTERM)
        assert left.wait(300) in (0, -signal.SIGTERM)
    finally:
        for process, _ in processes:
            process.kill()
            process.communicate()
