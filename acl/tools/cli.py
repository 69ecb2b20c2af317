"""The command `aclpool`: finds the tool that is asked for and runs it.

Each tool is a module of this package with `add_parser(subparsers)` and `run(arguments) -> int`, and
imports what is heavy only in `run`.  A module that is not there is left out.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import acl

__all__ = ["TOOLS", "main", "parser"]

#: The tools, in the order in which `--help` lists them.
TOOLS = ("doctor", "ledger", "demo", "sim", "run", "bench", "replay", "view", "top")


def parser() -> argparse.ArgumentParser:
    """The command line of `aclpool` with all its tools."""
    top = argparse.ArgumentParser(
        prog="aclpool", description="Tools for acl, its pool and its simulator."
    )
    top.add_argument("--version", action="version", version=f"aclpool {acl.__version__}")
    subparsers = top.add_subparsers(title="tools", metavar="TOOL", required=True)
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
    return top


def open_closed() -> None:
    """What the shell closed (``2>&-``) goes nowhere: else files that are opened would take its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `aclpool` with these arguments (the process's own if None); its exit code."""
    open_closed()
    choice = parser().parse_args(arguments)
    try:
        code: int = choice.run(choice)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("\naclpool: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        # Who read has gone, as `head` does, or a disk is full; the flush at the exit shall not complain either.
        if not isinstance(error, BrokenPipeError):
            print(f"aclpool: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
