"""The class of the Ray deployment, with a stand-in for Ray: it answers as the single server does."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Any:
    ray, serve, util, metrics = (types.ModuleType(n) for n in ("ray", "ray.serve", "ray.util", "ray.util.metrics"))
    context = types.SimpleNamespace(replica_id=types.SimpleNamespace(unique_id="r1"))
    gauge = types.SimpleNamespace(set=lambda *of: None)
    for module, members in (
        (serve, {"get_replica_context": lambda: context}), (metrics, {"Gauge": lambda *of, **how: gauge}),
        (ray, {"serve": serve, "util": util}), (util, {"metrics": metrics}),
    ):
        for name, value in members.items():
            monkeypatch.setattr(module, name, value, raising=False)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    import ray_serve

    return ray_serve.Replica


class Request:
    def __init__(self, body: bytes) -> None:
        self.content = body

    async def body(self) -> bytes:
        return self.content


def test_a_replica_answers_as_the_single_server_does(replica: Any) -> None:
    from acl.serving import Refused

    async def main() -> None:
        made = replica("64MiB")
        try:
            for body, status in (
                (b'{"input": "hi"}', 200), (b"{", 400), (b"{}", 400), (b'{"input": ""}', 400), (b"[" * 9999, 400),
                (b'{"input": "%s"}' % (b"x" * 600), 400), (b" " * 70_000, 413),
            ):
                answer = await made(Request(body))
                assert answer.status_code == status, (body[:20], answer.body)
                assert json.loads(answer.body)["replica"] == "r1"

            def full(item: Any, *of: Any, **how: Any) -> Any:
                raise Refused(429, "full", 0.1)

            made.engine.submit, submit = full, made.engine.submit
            answer = await made(Request(b'{"input": "hi"}'))
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
            made.engine.submit = submit
            waiting = [asyncio.ensure_future(made(Request(b'{"input": "hi"}'))) for _ in range(6)]
            await asyncio.sleep(0)
            waiting[0].cancel()                 # as Ray does when the client disconnects
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(found[0], asyncio.CancelledError)
            assert [one.status_code for one in found[1:]] == [200] * 5
            made.check_health()
        finally:
            made.teller.cancel()
            made.engine.close()

    asyncio.run(main())
