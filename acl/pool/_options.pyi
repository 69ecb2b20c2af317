from collections.abc import Container
from typing import NamedTuple

__all__ = ["bytes_of", "early_frees_default", "guard_every", "name_of", "share_of"]

class Option(NamedTuple):
    kind: str
    default: object
    sets: str
    change: str
    variable: str = ""
    type: str = ""
    shown: str = ""

OPTIONS: dict[str, Option]

def bytes_of(value: int | str, name: str) -> int: ...
def early_frees_default() -> bool: ...
def guard_every(debug: bool | str | None) -> int: ...
def name_of(name: object, number: int, taken: Container[str]) -> str: ...
def share_of(value: int | str, name: str, total: int) -> int: ...
