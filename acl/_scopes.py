"""What holds a pool for a while: an unload, a background decay, the registration of new streams."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from acl._device import Device
from acl._stream import made_hooks

if TYPE_CHECKING:
    from acl._pool import Pool
    from acl._stream import Stream

__all__ = ["Decay", "Unloading", "UsePool"]


class Unloading:
    """What `Pool.unloading` returns."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def __enter__(self) -> Unloading:
        self.pool.unload_begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.unload_end()


class Decay:
    """A thread that ticks; it does not keep the pool alive."""

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
        """Tick until told to stop, or until the pool is gone."""
        while not done.wait(interval):
            pool = reference()
            if pool is None or pool.closed:
                return
            Device(pool.device).use()
            pool.decay_tick()
            del pool

    def stop(self) -> None:
        """End the thread, and wait for its last tick."""
        self.done.set()
        if threading.current_thread() is not self.thread:
            self.thread.join()


class UsePool:
    """What `use_pool` returns: leaving it ends the registration of new streams."""

    def __init__(self, pool: Pool) -> None:
        if pool.closed:
            raise ValueError("the Pool is closed")
        self.pool = pool
        made_hooks.append(self.on_made)

    def on_made(self, stream: Stream) -> None:
        """A stream was made."""
        if stream.device == self.pool.device and not self.pool.closed:
            self.pool.register(stream)

    def close(self) -> None:
        """New streams are not registered any more; those that are stay so."""
        if self.on_made in made_hooks:
            made_hooks.remove(self.on_made)

    def __enter__(self) -> Pool:
        return self.pool

    def __exit__(self, *error: object) -> None:
        self.close()
