"""What goes into an engine and what comes out of it: options, results, refusals, health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["Health", "LaneHealth", "Options", "Refused", "Result", "number_checked"]


class Refused(Exception):
    """A request that is not served, for a reason that is not its own content.

    Attributes
    ----------
    status : int
        HTTP's number: 404, 413, 429, 503 or 504.
    reason : str
        One sentence.
    after : float or None
        In how many seconds to ask again; None if asking again does not help.
    """

    def __init__(self, status: int, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.after = status, reason, after


class Result(NamedTuple):
    """What a request is answered.

    Attributes
    ----------
    value : object
        What the task's `split` made of the outputs.
    batch : int
        How many requests shared the run.
    version : int
        The number of the model's version that served it, as `Engine.load` returned it.
    """

    value: Any
    batch: int
    version: int


class LaneHealth(NamedTuple):
    """How one lane is.

    Attributes
    ----------
    number : int
        From 0.
    state : str
        ``"working"``, ``"failing"`` (the device did not serve its last batch) or ``"ended"`` (its thread is gone).
    faults : int
        Faults of the device that it has met.
    error : str or None
        The last of them.
    """

    number: int
    state: str
    faults: int
    error: str | None


class Health(NamedTuple):
    """How an engine is.

    Attributes
    ----------
    state : str
        ``"ok"``, ``"empty"`` (no model is loaded), ``"draining"``, or ``"failing"``: no lane works, or one has ended.
    lanes : tuple of LaneHealth
        Each lane.
    """

    state: str
    lanes: tuple[LaneHealth, ...]


def number_checked(name: str, value: Any, *, least: float, whole: bool = False, none: bool = False) -> None:
    """Refuse what is not a number of at least `least`; with `none`, None is accepted."""
    if none and value is None:
        return
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not value >= least:
        what = "an int" if whole else "a number"
        raise ValueError(f"{name} must be {what} of at least {least}{' or None' if none else ''}, not {value!r}")


@dataclass(frozen=True)
class Options:
    """How an engine is set up.

    Attributes
    ----------
    device : int
        Ordinal of the device.
    lanes : int
        Streams, each with a thread; that many batches run at once.
    batch : int
        Most requests in one batch.
    linger_ms : float
        How long the first request of a batch waits for others.
    queue : int
        Most requests that wait.
    queue_timeout_s : float or None
        A request that has waited that long is refused with 503; None for no limit.
    limit, headroom : int, str or None
        Of the engine's pool, as for `acl.Pool`; None for what `ACL_POOL_LIMIT` and `ACL_POOL_HEADROOM` say.
    pool : bool
        False: memory comes from the driver.
    patience_s : float
        How long after its arrival a request may be tried again.
    tries : int
        How often a request alone is tried on a device that works, if the device reports a fault each time.
    run_timeout_s : float or None
        A batch that runs longer is aborted, and tried again as after a fault; None for no limit.
    name : str
        Of the pool.
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
