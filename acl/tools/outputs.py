"""Check, before a tool works for minutes, that it can write its output files."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from acl.inside._text import write_replaced

__all__ = ["check_output", "check_plot", "write_text"]


def check_output(option: str, file: str | None) -> None:
    """Raise ValueError for a file that cannot be written; None and ``-`` are not checked.

    Raises
    ------
    ValueError
        The message names the option, what was expected and what was given.
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
        else:                                   # the tool writes a temporary file in this folder and renames it
            with tempfile.TemporaryFile(dir=path.parent):
                pass
    except OSError as error:
        raise ValueError(f"{option}: {file!r} cannot be written: {error.strerror}") from None


def check_plot(option: str, file: str) -> None:
    """Raise ValueError for a plot's file that does not end in .svg, or cannot be written.

    Raises
    ------
    ValueError
        The message names the option, what was expected and what was given.
    """
    if not file.endswith(".svg"):
        raise ValueError(f"{option}: expected a file ending in .svg, got {file!r}")
    check_output(option, file)


def write_text(file: str, text: str) -> None:
    """Write a text to a file, which is replaced at once, or to standard output if `file` is ``-``."""
    if file != "-":
        write_replaced(file, text)
    elif hasattr(sys.stdout, "buffer"):         # UTF-8 even on a terminal with another encoding: pages declare UTF-8
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    else:
        sys.stdout.write(text)
