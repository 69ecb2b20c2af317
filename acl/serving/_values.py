"""The values that an engine takes and returns: options, results, refusals, health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Health", "LaneHealth", "Options", "Refused", "Result", "number_checked"]


class Refused(Exception):
    """The exception for a request that is not served, for a reason other than its content.

    Attributes
    ----------
    status : int
        HTTP status: 404, 413, 429, 503 or 504.
    reason : str
        The reason in one sentence.
    after : float or None
        Seconds after which to submit the request again; None if that is not expected to help.
    """

    def __init__(self, status: int, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.after = status, reason, after


class Result(NamedTuple):
    """The answer to a request.

    Attributes
    ----------
    value : object
        The request's result, as the task's `split` returned it.
    batch : int
        Number of requests in the batch that was run.
    version : int
        Number of the model's version that served the request, as `Engine.load` returned it.
    """

    value: Any
    batch: int
    version: int


class LaneHealth(NamedTuple):
    """The state of one lane.

    Attributes
    ----------
    number : int
        Number of the lane, from 0.
    state : str
        ``"working"``, ``"failing"`` (the lane got no working stream after a fault, and no batch has run since then) or
        ``"ended"`` (the lane's thread has ended).
    faults : int
        Number of device faults in its batches.
    error : str or None
        Message of the last fault; None if there was none.
    """

    number: int
    state: str
    faults: int
    error: str | None


class Health(NamedTuple):
    """The state of an engine.

    Attributes
    ----------
    state : str
        ``"ok"``, ``"empty"`` (no model is loaded), ``"draining"`` (new requests are refused), or ``"failing"`` (no lane
        works, or a lane has ended).
    lanes : tuple of LaneHealth
        State of each lane.
    """

    state: str
    lanes: tuple[LaneHealth, ...]


def number_checked(name: str, value: Any, *, least: float, whole: bool = False, none: bool = False) -> None:
    """Raise ValueError if `value` is not a number of at least `least`; None is accepted if `none` is set."""
    if none and value is None:
        return
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not value >= least:
        what = "an int" if whole else "a number"
        raise ValueError(f"{name} must be {what} of at least {least}{' or None' if none else ''}, not {value!r}")


@dataclass(frozen=True)
class Options:
    """The settings of an engine.

    Attributes
    ----------
    device : int
        Number of the device.
    lanes : int
        Number of lanes.  A lane is a thread with a stream; it runs one batch at a time.
    batch : int
        Most requests in one batch.
    linger_ms : float
        Milliseconds that the first request of a batch waits for other requests that can share the batch.
    queue : int
        Most requests that may wait.
    queue_timeout_s : float or None
        Seconds after which a waiting request fails with status 503; None for no limit.
    limit, headroom : int, str or None
        Limit and headroom of the engine's pool, as for `acl.Pool`; None for the values of the environment variables
        `ACL_POOL_LIMIT` and `ACL_POOL_HEADROOM`.
    pool : bool
        True if the engine has a pool; False if the driver allocates the memory of the batches.
    patience_s : float
        Seconds after its arrival for which a failed request may be tried again.
    tries : int
        How many times a request that is alone in its batch is tried, if the device reports a fault each time and works
        again afterwards.
    run_timeout_s : float or None
        Seconds after which a running batch is aborted.  It is then tried again as after a fault.  None for no limit.
    name : str
        Name of the pool.
    """

    device: int = 0
    lanes: int = 2
    batch: int = 8
    linger_ms: float = 2.0
    queue: int = 256
    queue_timeout_s: float | None = None
    limit: str | int | None = None
    headroom: str | int | None = None
    pool: bool = True
    patience_s: float = 30.0
    tries: int = 3
    run_timeout_s: float | None = 10.0
    name: str = "serving"

    def __post_init__(self) -> None:
        for name in ("lanes", "batch", "queue", "tries"):
            number_checked(name, getattr(self, name), least=1, whole=True)
        for name in ("linger_ms", "patience_s"):
            number_checked(name, getattr(self, name), least=0)
        for name in ("queue_timeout_s", "run_timeout_s"):
            number_checked(name, getattr(self, name), least=0.001, none=True)
