"""Text that others made, for a terminal, XML, JSON or metrics; and files that are whole or not there.

Names of pools and tags, paths, commands and messages may hold anything: escape sequences that a terminal
obeys, line breaks that spoil a table, surrogates that no encoding takes.  All of it goes through
`printable`.  What is written goes through `replaced`, so that a full disk leaves the old file.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["printable", "replaced", "write_replaced"]

#: Control characters, line and paragraph breaks, marks that turn the direction of text, surrogates, no characters.
_FOREIGN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: object, *, lines: bool = False) -> str:
    """A text with an escape such as ``\\x1b`` for each character that is more than a character.

    Parameters
    ----------
    text : object
        Its `str` is taken.
    lines : bool
        Leave line breaks as they are: the text is of several lines.
    """
    text = str(text)
    if lines:
        return "\n".join(printable(line) for line in text.split("\n"))
    return _FOREIGN.sub(_escaped, text)


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file that is written beside `path` and takes its place once it is whole.

    If the block fails, what was there stays.  What is no regular file (a pipe, ``/dev/stdout``) is
    written in place.
    """
    path = Path(os.path.realpath(path))
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with path.open("wb") as plain:
            yield plain
        return
    number, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            os.fchmod(number, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
            yield file
            file.flush()
            os.fsync(number)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    """Which permissions new files have not; asked without changing it, which other threads would notice."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def write_replaced(path: str | os.PathLike[str], text: str) -> None:
    """A text as such a file, in UTF-8."""
    with replaced(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
