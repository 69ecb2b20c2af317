"""Inference behind a queue: collect requests into batches, run them on several streams, and return the results.

    import aclpool as acl
    from aclpool.serving import Engine, Options, Task

    with Engine(Options(limit="2GiB", lanes=3)) as engine:
        engine.load("encoder", Task("encoder.onnx"), instances=3)
        result = engine.submit(item).result()           # or: await engine.ask(item)

`_engine` accepts requests, loads models and shuts down; `_queue` orders the waiting requests; `_lane` manages the
stream of a thread; `_attempts` serves a batch until each of its requests is answered or has failed; `_version` is a
loaded model; `_tally` counts events and estimates the memory and time of batches; `_page` writes the metrics; a `Task`
makes batches of requests.

May import: everything below `adapters`, and `acl.metrics`. Start with `_attempts.py`, then `_engine.py`.
"""

from acl.serving._engine import Engine
from acl.serving._page import EngineCollector, metrics_page
from acl.serving._tally import Histogram
from acl.serving._task import Task
from acl.serving._values import Health, LaneHealth, Options, Refused, Result

__all__ = [
    "Engine", "EngineCollector", "Health", "Histogram", "LaneHealth", "Options", "Refused", "Result", "Task",
    "metrics_page",
]
