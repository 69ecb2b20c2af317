"""The command `aclpool`: finds the tool that is asked for and runs it.

Each tool is a module of this package with `add_parser(subparsers)` and `run(arguments) -> int`, and
imports large modules only in `run`.  A tool whose module is missing is left out.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

import acl
from acl.inside._text import printable

__all__ = ["TOOLS", "main", "parser"]

#: The tools, in the order in which `--help` lists them.
TOOLS = ("doctor", "ledger", "demo", "sim", "run", "bench", "compare", "replay", "view", "top", "exporter", "trim",
         "completion")


class Parser(argparse.ArgumentParser):
    """A parser that suggests similar names for a wrong one; the parsers of the tools are of this class too."""

    def error(self, message: str) -> NoReturn:
        """Print the usage, the mistake, and similar names; exit with code 2."""
        wrong = re.match(r".*invalid choice: '?([^' ]*)'? \(choose from (.*)\)", message)
        options = re.match(r"unrecognized arguments: (--[^ =]+)", message)
        known = (re.findall(r"[\w.-]+", wrong[2]) if wrong else
                 [name for action in self._actions for name in action.option_strings])
        found = wrong or options
        close = difflib.get_close_matches(found[1], known, 1) if found else []
        hint = f"; did you mean {close[0]}?" if close else ""
        super().error(printable(f"{message}{hint}"))


def parser() -> argparse.ArgumentParser:
    """Return the parser of `aclpool` with all its tools."""
    top = Parser(prog="aclpool", description="Tools for acl, its pool and its simulator.")
    top.add_argument("--version", action="version", version=f"aclpool {acl.__version__}")
    subparsers = top.add_subparsers(title="tools", metavar="TOOL", dest="tool")
    for name in TOOLS:
        module = f"acl.tools.{name}"
        try:
            tool = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            continue
        if not hasattr(tool, "add_parser"):
            continue
        known = set(subparsers.choices)
        tool.add_parser(subparsers)
        for added in subparsers.choices.keys() - known:
            if subparsers.choices[added].get_default("run") is None:
                subparsers.choices[added].set_defaults(run=tool.run)
            subparsers.choices[added].set_defaults(parser=subparsers.choices[added])
    return top


def open_closed() -> None:
    """Open /dev/null for a standard stream that the shell closed (``2>&-``), or the next file would get its number."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `aclpool` with these arguments, or with the process's own if None. Return the exit code."""
    open_closed()
    try:
        return run(arguments)
    except KeyboardInterrupt:                   # Ctrl-C, also during the import of the tools
        print("\naclpool: interrupted", file=sys.stderr)
        return 130


def run(arguments: Sequence[str] | None) -> int:
    """Run `aclpool` as `main` does, but do not catch KeyboardInterrupt."""
    top = parser()
    choice, rest = top.parse_known_args(arguments)
    if choice.tool is None and not rest:
        top.print_help(sys.stderr)
        return 2
    if rest or choice.tool is None:
        # The tool's own parser reports the error, so that the usage of the tool is shown.
        getattr(choice, "parser", top).error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        code: int = choice.run(choice)
        sys.stdout.flush()
    except OSError as error:
        # The reader of stdout has exited (as `head` does), or a disk is full.  The flush at exit must not fail again.
        if not isinstance(error, BrokenPipeError):
            print(f"aclpool: {printable(error)}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (acl.AclError, MemoryError) as error:
        print(f"aclpool {choice.tool}: {printable(error, lines=True) or 'no memory'}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
