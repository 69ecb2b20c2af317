"""Checks of torch_npu after a test: errors are reported for the test that caused them, and devices are recovered.

After a failed task, a stream refuses all further work.  torch_npu's own recovery (`stop_device`,
`restart_device`) repairs that.  If operators are queued (`ASCEND_LAUNCH_BLOCKING=0`) and one fails, the first wait
for the device raises an error, and torch_npu drops all later operators without an error.  Their results are then
the old content of the memory.  That cannot be repaired.  To detect it, `_compute` adds numbers that it has not added
before.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["Torch", "torch_in_use"]


def torch_in_use() -> Any:
    """Return the module `torch` if this process has used a device through it, else None."""
    torch = sys.modules.get("torch")
    npu = getattr(torch, "npu", None)
    return torch if npu is not None and "torch_npu" in sys.modules and npu.is_initialized() else None


def used_by_torch(device: int) -> bool:
    return bool(sys.modules["torch_npu"]._C._npu_hasPrimaryContext(device))


def first_line(error: Exception) -> str:
    """Return the type and the first line of an error of torch, without its C++ stack and notes."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


class Torch:
    """The state of torch_npu in this process.  The methods do nothing while torch uses no device."""

    def __init__(self) -> None:
        self._number = 0
        self._device = 0
        self._known: set[int] = set()

    def arrive(self) -> None:
        """Called before a test's fixtures: remember which devices torch uses."""
        torch = torch_in_use()
        devices = range(torch.npu.device_count()) if torch else ()
        self._known = set(filter(used_by_torch, devices))

    def begin(self) -> None:
        """Called before the test function: remember the current device, which the fixtures may have set."""
        torch = torch_in_use()
        self._device = int(torch.npu.current_device()) if torch else 0

    def drain(self) -> str | None:
        """Wait for all devices that torch uses; return the first error as a text, or None."""
        torch = torch_in_use()
        said = None
        for device in range(torch.npu.device_count()) if torch else ():
            if used_by_torch(device):
                try:
                    torch.npu.synchronize(device)
                except Exception as error:
                    said = said or first_line(error)
        return said

    def depart(self, said: str | None, blocking: bool) -> tuple[str | None, str | None]:
        """Check and recover all devices that torch uses; `said` is the result of `drain`.

        Return two error texts, each None if there is no such error: the first error of the test, and the first error
        that remains.  `blocking` is true if torch_npu runs operators without a queue.  Recovery is tried only then:
        after a failed operator in the queue torch_npu may wait for ever.
        """
        torch = torch_in_use()
        if torch is None:
            return None, None
        if said is not None and not blocking:
            return said, said
        wrong, lasting = said, None
        for device in range(torch.npu.device_count()):
            if used_by_torch(device):
                one = self._compute(torch, device)
                stays = self._mend(torch, device) if one is not None and blocking else one
                wrong, lasting = wrong or one, lasting or stays
        torch.npu.set_device(self._device)
        return wrong, lasting

    def reserved(self, device: int) -> int | None:
        """Return the bytes that torch reserves for tensors on a device which it did not use before the test.

        Return None if torch used the device before the test, or does not use it now.  For a device that torch began
        to use in the test, the simulator's count would not do: it includes memory that torch_npu allocates at the
        first use of a device and keeps.
        """
        torch = torch_in_use()
        if torch is None or device in self._known or not used_by_torch(device):
            return None
        return int(torch.npu.memory_reserved(device))

    def empty_cache(self) -> None:
        """Return the memory of freed tensors, which torch caches, to the device."""
        torch = torch_in_use()
        if torch is not None:
            torch.npu.synchronize()
            torch.npu.empty_cache()

    def _mend(self, torch: Any, device: int) -> str | None:
        """Recover a device with torch_npu's functions; return the error that remains, or None."""
        try:
            torch.npu.stop_device(device)
            torch.npu.restart_device(device)
        except Exception as error:
            return first_line(error)
        return self._compute(torch, device)

    def _compute(self, torch: Any, device: int) -> str | None:
        """Add numbers on a device; return an error text if that fails or the sum is wrong, else None."""
        self._number += 1
        try:
            place = torch.device("npu", device)
            found = (torch.full((1,), float(self._number)).to(place) + self._number).item()
        except Exception as error:
            return first_line(error)
        return None if found == 2 * self._number else (
            "an operator failed in torch_npu's queue, and those after it were dropped without an error")
