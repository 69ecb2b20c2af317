"""Safe output: text from users for a terminal, XML, JSON or metrics; and files that are replaced as a whole.

Names of pools and tags, paths, commands and messages may contain any characters: escape sequences that a terminal
executes, line breaks that break a table, surrogates that cannot be encoded.  `printable` escapes them.  `replaced`
writes files in such a way that a full disk leaves the old file unchanged.
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

#: Control characters, line and paragraph breaks, marks that change the direction of text, surrogates, non-characters.
_FOREIGN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: object, *, lines: bool = False) -> str:
    """Return a text with an escape such as ``\\x1b`` for each character that is not plain text.

    Parameters
    ----------
    text : object
        An object, whose `str` is used.
    lines : bool
        True to keep line breaks, for a text of several lines.
    """
    text = str(text)
    if lines:
        return "\n".join(printable(line) for line in text.split("\n"))
    return _FOREIGN.sub(_escaped, text)


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Context manager: gives a new file, which replaces the file at `path` at the end of the block.

    The new file is written in the folder of `path`.  If the block fails, the old file stays.  If `path` is not a
    regular file (a pipe, ``/dev/stdout``), it is written in place.
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
    """Return the umask without changing it, because other threads would use a changed one."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o022


def write_replaced(path: str | os.PathLike[str], text: str) -> None:
    """Write a text to a file in UTF-8, by `replaced`."""
    with replaced(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))
