"""Tell changes of code from changes of comments: `python tests/mutations/changes.py REV [FILE ...]`.

Prints the files (all that differ from the revision REV, or only those named) whose code differs, not only their
comments, docstrings and blank lines.  Exits with 1 if there is such a file.  A file that is neither Python, Cython
nor C counts as code in every line.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

__all__ = ["changed_code", "changed_files", "code"]

ROOT = Path(__file__).parent.parent.parent
PYTHON = {".py", ".pyi", ".pyx", ".pxd", ".pxi"}
C = {".c", ".h", ".cpp"}
#: A comment, or a literal, in which nothing is a comment.
C_COMMENT_OR_LITERAL = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""", re.S)
C_WORD = re.compile(r"""^[ \t]*#(?:\\\n|[^\n])*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\w+|[^\w\s]""", re.M)
#: Comments that compilers and checkers obey.
OBEYED = re.compile(r"#\s*(cython|distutils|type|noqa)\s*:")
LAYOUT = (tokenize.NL, tokenize.ENCODING)
STATEMENT_ENDS = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def follows_extern(found: list[str]) -> bool:
    """True if the next token begins the block of a `cdef extern`: a string there is code in C."""
    ends = [tokenize.tok_name[kind] for kind in STATEMENT_ENDS]
    head = len(found)
    while head > 0 and found[head - 1] in ends:
        head -= 1
    while head > 0 and found[head - 1] not in ends:
        head -= 1
    return found[-1:] == ["INDENT"] and found[head:head + 2] == ["cdef", "extern"]


def python_code(text: str) -> list[str]:
    """Return the tokens of Python or Cython without comments and docstrings."""
    found: list[str] = []
    begins = True               # the next token begins a statement
    pending: str | None = None  # a string that begins a statement: a docstring if the statement ends behind it
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in LAYOUT or (token.type == tokenize.COMMENT and not OBEYED.match(token.string)):
            continue
        if token.type == tokenize.STRING and begins:
            pending = token.string
        else:
            if pending is not None and (token.type != tokenize.NEWLINE or follows_extern(found)):
                found.append(pending)
            pending = None
            # The width of an indentation does not matter, only that it changes.
            found.append(token.string if token.type not in STATEMENT_ENDS else tokenize.tok_name[token.type])
        begins = token.type in STATEMENT_ENDS
    return found


def c_code(text: str) -> list[str]:
    """Return the words of C without comments; each line of the preprocessor as one word."""
    bare = C_COMMENT_OR_LITERAL.sub(lambda found: " " if found[0].startswith("/") else found[0], text)
    return [" ".join(word.split()) if word.lstrip().startswith("#") else word for word in C_WORD.findall(bare)]


def code(name: str, text: str) -> object:
    """Return the code of a file, without comments and docstrings, in a form that can be compared."""
    suffix = Path(name).suffix
    try:
        return python_code(text) if suffix in PYTHON else c_code(text) if suffix in C else text
    except (tokenize.TokenError, IndentationError):
        return text             # the text cannot be read as Python, so every line counts as code


def git(*arguments: str) -> str | None:
    """Return what git prints; None if it fails."""
    done = subprocess.run(("git", *arguments), cwd=ROOT, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    return done.stdout if done.returncode == 0 else None


def changed_files(base: str) -> list[str] | None:
    """Return the files that differ from the revision `base`; None if git does not know it."""
    listed = git("diff", "--name-only", base)
    return None if listed is None else listed.splitlines()


def changed_code(base: str, files: list[str]) -> list[str]:
    """Return the files whose code differs from the revision `base`."""
    found = []
    for name in files:
        before, path = git("show", f"{base}:{name}"), ROOT / name
        if before is None or not path.exists() or code(name, before) != code(name, path.read_text(encoding="utf-8")):
            found.append(name)
    return found


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    base, *files = sys.argv[1:]
    listed = files or changed_files(base)
    if listed is None:
        raise SystemExit(f"git does not know the revision {base!r}")
    found = changed_code(base, listed)
    print("\n".join(found) or f"{len(listed)} files differ from {base} in comments and docstrings at most")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
