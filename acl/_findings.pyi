from dataclasses import dataclass

__all__ = ["GuardFinding", "guard_findings", "reports"]

@dataclass(frozen=True)
class GuardFinding:
    kind: str
    device: int
    stream: int
    block: int
    address: int
    size: int
    allocated: tuple[str, ...]
    freed: tuple[str, ...]
    found: tuple[str, ...]

def drain() -> None: ...
def guard_findings() -> tuple[GuardFinding, ...]: ...
def reports() -> dict[str, int]: ...
