"""Files that a tool is asked to write, looked at before it works for minutes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from acl.inside._text import write_replaced

__all__ = ["check_output", "check_plot", "write_text"]


def check_output(option: str, file: str | None) -> None:
    """Refuse a file that cannot be written; None and ``-`` are none.

    Raises
    ------
    ValueError
        Naming the option, what was expected and what came.
    """
    if not file or file == "-":
        return
    path = Path(file)
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"{option}: expected a file in a folder that exists, got {file!r}")
    try:
        if path.exists():
            with path.open("ab"):
                pass
        else:                                   # it is written beside, and takes its place once it is whole
            with tempfile.TemporaryFile(dir=path.parent):
                pass
    except OSError as error:
        raise ValueError(f"{option}: {file!r} cannot be written: {error.strerror}") from None


def check_plot(option: str, file: str) -> None:
    """Refuse a file for a plot that does not end in .svg, or cannot be written.

    Raises
    ------
    ValueError
        Naming the option, what was expected and what came.
    """
    if not file.endswith(".svg"):
        raise ValueError(f"{option}: expected a file ending in .svg, got {file!r}")
    check_output(option, file)


def write_text(file: str, text: str) -> None:
    """Write a text to a file, which is replaced whole, or to standard output if `file` is ``-``."""
    if file != "-":
        write_replaced(file, text)
    elif hasattr(sys.stdout, "buffer"):         # UTF-8, whatever the terminal takes: pages say that they are
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    else:
        sys.stdout.write(text)
