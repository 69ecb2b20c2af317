"""The cost of driver calls on hardware, as far as figures are published.

The table gives microseconds per call and per MiB. There are no public figures for Ascend's calls, so
figures of the CUDA calls with the same purpose are used. The virtual-memory calls are as measured on an A100
with 2 MiB pages for vAttention (Prabhu et al., ASPLOS 2025, arXiv 2405.04437, table of VMM call
latencies: reserve 2, create 29, map 2 and set-access 38, unmap 34, release 23, address free 1; one Ascend
map call does what map and set-access do there). Plain allocations have the ratio to create that GMLake gives
(Guo et al., ASPLOS 2024, table 1), about 1.6 ms for 2 GiB, with a base of 50 us for a small one.
The price of a synchronisation is that of the call without the wait for work.  The table gives only the order of
magnitude; `--latency FILE` replaces its figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

__all__ = ["PRICES", "load_prices", "priced_ms"]

#: Microseconds by call: (for each call, for each MiB of the call's size).
PRICES: dict[str, tuple[float, float]] = {
    "aclrtMalloc": (50.0, 0.78),
    "aclrtMallocAlign32": (50.0, 0.78),
    "aclrtFree": (50.0, 0.0),
    "aclrtReserveMemAddress": (2.0, 0.0),
    "aclrtReleaseMemAddress": (1.0, 0.0),
    "aclrtMallocPhysical": (27.4, 0.78),
    "aclrtFreePhysical": (23.0, 0.0),
    "aclrtMapMem": (40.0, 0.0),
    "aclrtUnmapMem": (34.0, 0.0),
    "aclrtMemSetAccess": (38.0, 0.0),
    "aclrtGetMemInfo": (10.0, 0.0),
    "aclrtSynchronizeStream": (10.0, 0.0),
    "aclrtSynchronizeStreamWithTimeout": (10.0, 0.0),
    "aclrtSynchronizeDevice": (10.0, 0.0),
    "aclrtSynchronizeDeviceWithTimeout": (10.0, 0.0),
    "aclrtSynchronizeEvent": (10.0, 0.0),
    "aclrtStreamQuery": (2.0, 0.0),
    "aclrtCreateEventExWithFlag": (5.0, 0.0),
    "aclrtRecordEvent": (3.0, 0.0),
    "aclrtQueryEventStatus": (2.0, 0.0),
    "aclrtStreamWaitEvent": (3.0, 0.0),
    "aclrtDestroyEvent": (3.0, 0.0),
    "aclmdlRICaptureGetInfo": (1.0, 0.0),
}


def load_prices(path: str | Path) -> dict[str, tuple[float, float]]:
    """Return the table with the entries of a JSON file in it: name to us, or to [us, us per MiB].

    Raises
    ------
    ValueError
        An entry is not a price; the message names it.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(entries, dict):
        raise ValueError(f"{path}: expected an object of prices, got {type(entries).__name__}")
    prices = dict(PRICES)
    for name, entry in entries.items():
        numbers = entry if isinstance(entry, list) else [entry, 0.0]
        if len(numbers) != 2 or not all(
            isinstance(n, int | float) and not isinstance(n, bool) and n >= 0 for n in numbers
        ):
            raise ValueError(f"{path}: {name}: expected microseconds or [microseconds, microseconds "
                             f"per MiB], got {entry!r}")
        prices[name] = (float(numbers[0]), float(numbers[1]))
    return prices


def priced_ms(calls: Mapping[str, tuple[int, int]], prices: Mapping[str, tuple[float, float]]) -> float:
    """Return the milliseconds that these calls, name to (count, bytes), would take; calls without a price take none."""
    total = 0.0
    for name, (count, size) in calls.items():
        each, per_mib = prices.get(name, (0.0, 0.0))
        total += count * each + size / (1 << 20) * per_mib
    return total / 1000
