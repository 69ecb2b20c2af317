"""`aclpool completion`: print a script with which a shell completes `aclpool`'s tools, options and file names.

The package `shtab` makes the script from the current command line of `aclpool`.  Only this tool needs `shtab`.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

__all__ = ["add_parser", "run"]

SHELLS = ("bash", "zsh", "tcsh")
#: The names (metavars) of arguments that are files, in the help texts of the tools.
FILES = ("FILE", "PAGE", "PICTURE", "SUMMARY", "TRACE", "PATH", "PROGRAM.py ARGS")


def add_parser(subparsers: Any) -> None:
    """Add `completion` to the command line."""
    parser = subparsers.add_parser(
        "completion", help="a script that makes a shell complete this command", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shell", choices=SHELLS, help="which; bash: eval \"$(aclpool completion bash)\"")


def name_files(parser: argparse.ArgumentParser) -> None:
    """Tell `shtab` which arguments are files or folders, in the parsers of all tools."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                name_files(inner)
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY       # type: ignore[attr-defined]
        elif action.metavar in FILES:
            action.complete = shtab.FILE            # type: ignore[attr-defined]


def run(arguments: argparse.Namespace) -> int:
    """Print the script. Return 1 if `shtab` is not installed."""
    from acl.tools import cli

    try:
        import shtab
    except ImportError:
        print("aclpool completion: wants the package shtab: pip install 'aclpool[completion]'", file=sys.stderr)
        return 1
    whole = cli.parser()
    name_files(whole)
    print(shtab.complete(whole, arguments.shell))
    return 0
