"""torch_npu after a test: its errors come to the test that caused them, and its queue is made clean again.

A stream whose task failed refuses everything that follows; torch_npu's own recovery (`stop_device`,
`restart_device`) mends that.  If operators are queued (`ASCEND_LAUNCH_BLOCKING=0`) and one fails, the first wait
for the device raises, and all later operators are dropped without an error: results are then what the memory
held before.  Nothing mends that.  To detect it, `_compute` adds numbers that it has not added before.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["Torch", "torch_in_use"]


def torch_in_use() -> Any:
    """Return `torch` if this process has used a device by it, else None."""
    torch = sys.modules.get("torch")
    npu = getattr(torch, "npu", None)
    return torch if npu is not None and "torch_npu" in sys.modules and npu.is_initialized() else None


def used_by_torch(device: int) -> bool:
    return bool(sys.modules["torch_npu"]._C._npu_hasPrimaryContext(device))


def first_line(error: Exception) -> str:
    """What an error of torch says, without its C++ stack and notes."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


class Torch:
    """torch_npu of this process; a method does nothing as long as no device is in use."""

    def __init__(self) -> None:
        self._number = 0
        self._device = 0
        self._known: set[int] = set()

    def arrive(self) -> None:
        """Remember which devices are in use before a test."""
        torch = torch_in_use()
        devices = range(torch.npu.device_count()) if torch else ()
        self._known = set(filter(used_by_torch, devices))

    def begin(self) -> None:
        """Remember the current device, as the fixtures of a test leave it."""
        torch = torch_in_use()
        self._device = int(torch.npu.current_device()) if torch else 0

    def drain(self) -> str | None:
        """Wait for all devices in use; return what is wrong."""
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
        """After `drain`, which said that: make all devices in use right again.

        Return what is wrong, and what stays wrong.  An operator that failed in the queue stays: after the recovery
        torch_npu may wait for ever.
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
        """Bytes of tensors on a device that torch did not use before the test; None for others.

        With its first use of a device torch_npu gets memory for itself, which it keeps.
        """
        torch = torch_in_use()
        if torch is None or device in self._known or not used_by_torch(device):
            return None
        return int(torch.npu.memory_reserved(device))

    def empty_cache(self) -> None:
        """Give back what torch keeps of freed tensors."""
        torch = torch_in_use()
        if torch is not None:
            torch.npu.synchronize()
            torch.npu.empty_cache()

    def _mend(self, torch: Any, device: int) -> str | None:
        """Recover a device as torch_npu does; return what stays wrong."""
        try:
            torch.npu.stop_device(device)
            torch.npu.restart_device(device)
        except Exception as error:
            return first_line(error)
        return self._compute(torch, device)

    def _compute(self, torch: Any, device: int) -> str | None:
        """What is wrong with a sum, if something is."""
        self._number += 1
        try:
            place = torch.device("npu", device)
            found = (torch.full((1,), float(self._number)).to(place) + self._number).item()
        except Exception as error:
            return first_line(error)
        return None if found == 2 * self._number else (
            "an operator failed in torch_npu's queue, and those after it were dropped without an error")
