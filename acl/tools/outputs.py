"""Files that a tool is asked to write, looked at before it works for minutes."""

from __future__ import annotations

from pathlib import Path

__all__ = ["check_output"]


def check_output(option: str, file: str | None) -> None:
    """Refuse a file that cannot be written; None and ``-`` are none.

    Raises
    ------
    ValueError
        Naming the option, what was expected and what came.
    """
    if not file or file == "-":
        return
    if Path(file).is_dir() or not Path(file).parent.is_dir():
        raise ValueError(f"{option}: expected a file in a folder that exists, got {file!r}")
