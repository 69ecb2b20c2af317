from collections.abc import Callable
from typing import Any

__all__ = ["entries_end", "watch_table"]

def entries_end() -> None: ...
def watch_table(
    table: dict[int, Any], dropper: Callable[[list[Any]], object] | None = None
) -> None: ...
