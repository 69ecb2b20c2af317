"""Objects that affect a pool until they are closed: `Unloading`, `Decay` and `UsePool`."""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acl.bind._error import AclError
from acl.bind._log import warning
from acl.pool._registry import registered, stream_ended
from acl.runtime._device import Device
from acl.runtime._stream import made_hooks

if TYPE_CHECKING:
    from acl.pool._pool import Pool
    from acl.runtime._stream import Stream

__all__ = ["Decay", "Unloading", "UsePool"]


class Unloading:
    """The context manager of `Pool.unloading`."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def __enter__(self) -> Unloading:
        self.pool.unload_begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.unload_end()


class Decay:
    """A background thread that runs a decay step at each interval; it does not keep the pool alive."""

    def __init__(self, pool: Pool, interval_ms: int) -> None:
        if not isinstance(interval_ms, int):
            raise TypeError(f"decay_ms must be an int, not {type(interval_ms).__name__}")
        if not 1 <= interval_ms < 2**31:
            raise ValueError(f"decay_ms must be at least 1 and below 2**31, or 0 for never, not {interval_ms}")
        self.done = threading.Event()
        self.thread = threading.Thread(
            target=self.run, args=(weakref.ref(pool), self.done, interval_ms / 1000), daemon=True,
            name="acl-pool-decay")
        self.thread.start()

    @staticmethod
    def run(reference: weakref.ref[Pool], done: threading.Event, interval: float) -> None:
        """Run decay steps until `stop`, or until the pool is closed or deleted. A step that fails is tried again."""
        worked = True
        while not done.wait(interval):
            pool = reference()
            if pool is None or pool.closed:
                return
            try:
                Device(pool.device).use()
                pool.decay_tick()
                worked = True
            except Exception as error:
                if worked:
                    warning("pool", "%s: the decay will try again: %s", pool.name, error)
                worked = False
            del pool

    def stop(self) -> None:
        """End the thread, and wait until its last step is complete."""
        self.done.set()
        if threading.current_thread() is not self.thread:
            self.thread.join()


class UsePool:
    """The context manager of `use_pool`. New streams are registered until it is closed."""

    def __init__(self, pool: Pool) -> None:
        if pool.closed:
            raise ValueError("the Pool is closed")
        self.pool = pool
        _watch_pyacl()
        made_hooks.append(self.on_made)
        _raw_hooks.append(self.on_raw)

    def on_made(self, stream: Stream) -> None:
        """Register a new `Stream` with the pool, if it is of the pool's device."""
        if stream.device == self.pool.device and not self.pool.closed:
            self.pool.register(stream, replace=True)    # if several pools are in use, the newest one gets it

    def on_raw(self, handle: int, device: int) -> None:
        """Register a stream that a function of `acl.rt` made, if it is of the pool's device."""
        if device == self.pool.device and not self.pool.closed:
            self.pool.register(handle, replace=True)

    def close(self) -> None:
        """Stop registering new streams. Streams that are registered already stay registered."""
        if self.on_made in made_hooks:
            made_hooks.remove(self.on_made)
            _raw_hooks.remove(self.on_raw)

    def __enter__(self) -> Pool:
        return self.pool

    def __exit__(self, *error: object) -> None:
        self.close()


_CREATE = ("create_stream", "create_stream_with_config", "create_stream_v2")
_DESTROY = ("destroy_stream", "destroy_stream_force")
_raw_hooks: list[Callable[[int, int], object]] = []


def _watch_pyacl() -> None:
    """Wrap the functions of `acl.rt` that make and destroy streams, so that they call the hooks."""
    from acl import rt

    if not hasattr(rt.create_stream, "__wrapped__"):
        for name in _CREATE:
            setattr(rt, name, _telling_made(getattr(rt, name), rt.get_device, rt.destroy_stream))
        for name in _DESTROY:
            setattr(rt, name, _telling_ended(getattr(rt, name)))


def _telling_made(
    function: Callable[..., Any], get_device: Callable[[], tuple[int, int]], destroy: Callable[[int], object],
) -> Callable[..., Any]:
    @functools.wraps(function)
    def create(*arguments: Any, **named: Any) -> Any:
        handle, status = function(*arguments, **named)
        if status == 0 and _raw_hooks:
            device, known = get_device()
            try:
                for hook in list(_raw_hooks) if known == 0 else ():
                    hook(handle, device)
            except BaseException:
                destroy(handle)                 # the caller gets no handle that it could destroy
                raise
        return handle, status

    return create


def _telling_ended(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def destroy(*arguments: Any, **named: Any) -> Any:
        # Call it before the stream is destroyed: afterwards a new stream may get the same handle.
        if len(arguments) == 1 and not named and arguments[0] in registered:
            with contextlib.suppress(AclError):     # it ends all the same, and the function returns its own status
                stream_ended(arguments[0])
        return function(*arguments, **named)

    return destroy
