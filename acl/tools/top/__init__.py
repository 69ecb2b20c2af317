"""`aclpool top`: show pools of running services, live in a terminal, or as plain text or JSON.

A service is shown if it was started with `ACL_POOL_TOP=1` or has called `acl.serve_top()`.  The screen is drawn with
curses, which is imported only for that.  If Python was built without curses, text is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import locale
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acl.tools.top.sample import Answer

__all__ = ["add_arguments", "add_parser", "main", "run"]

DESCRIPTION = """\
Shows the pools of running services: what is live and reserved, how often the cache serves, slow
calls a second, out of memory; streams and tags below each pool, the devices above all.

A service is seen if it was started with ACL_POOL_TOP=1 or has called acl.serve_top().

keys: q quits, s sorts by the next column, p pauses, t folds streams and tags, + and - change the
interval, arrows and page keys scroll
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `aclpool top`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--once", action="store_true", help="print once and end; so it is without a terminal")
    parser.add_argument("--json", action="store_true", help="print once, as JSON")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS",
                        help="between two looks; rates are of this time (default: 1; 0 with --once: no rates)")
    parser.add_argument("--sort", default="reserved", metavar="COLUMN",
                        help="reserved, live, alloc/s, slow/s, OOMs or pid (default: reserved)")
    parser.add_argument("--pid", type=int, action="append", metavar="PID", help="only this process; may be repeated")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand `top`."""
    add_arguments(subparsers.add_parser("top", help="the pools of running services, live"))


def document_of(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    return {"processes": [
        {**answer.document, "rates": {name: asdict(rates) for name, rates in answer.rates.items()}}
        for answer in answers
    ]}


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise ValueError for arguments that cannot be used together or are out of range.

    Raises
    ------
    ValueError
        The message names the argument, what was expected and what was given.
    """
    from acl.tools.top.text import SORTS

    if arguments.sort not in SORTS:
        raise ValueError(f"--sort: expected one of {', '.join(SORTS)}, got {arguments.sort!r}")
    if not 0 <= arguments.interval <= 3600:
        raise ValueError(f"--interval: expected 0 to 3600 seconds, got {arguments.interval}")


def check_sockets() -> None:
    """Raise PermissionError if the folder of sockets belongs to another user, or another user can write to it.

    Called before the screen is drawn.
    """
    from acl.inside._top import check_folder, top_folder

    with contextlib.suppress(FileNotFoundError):
        check_folder(top_folder(), reading=True)


def print_once(arguments: argparse.Namespace, pids: set[int] | None) -> int:
    """Print text or JSON.  Return the exit status: 0, or 1 if no process answered."""
    from acl.tools.top.sample import sample
    from acl.tools.top.text import Options, lines

    answers = sample(arguments.interval, pids)
    if pids and not answers and not arguments.json:
        print(f"aclpool top: --pid: {', '.join(map(str, sorted(pids)))} cannot be seen", file=sys.stderr)
    if arguments.json:
        json.dump(document_of(answers), sys.stdout, indent=1)
        print()
    else:
        title = time.strftime("aclpool top  %Y-%m-%d %H:%M:%S")
        unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        for line in lines(answers, Options(sort=arguments.sort, unicode=unicode), title):
            print(line.text)
    return 0 if answers else 1


def run(arguments: argparse.Namespace) -> int:
    """Show the pools.

    Return the exit status: 2 if an argument, the sockets' folder or the terminal cannot be used; 1 if text or JSON is
    printed and no process answered; else 0.
    """
    try:
        check_arguments(arguments)
        check_sockets()
    except (ValueError, PermissionError) as error:
        print(f"aclpool top: {error}", file=sys.stderr)
        return 2
    pids = set(arguments.pid) if arguments.pid else None
    if arguments.once or arguments.json or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return print_once(arguments, pids)
    try:
        import curses

        from acl.tools.top.screen import Screen
    except ImportError:
        return print_once(arguments, pids)
    from acl.tools.top.text import Options

    locale.setlocale(locale.LC_ALL, "")
    unicode = locale.getpreferredencoding(False).lower().replace("-", "") == "utf8"
    options = Options(sort=arguments.sort, unicode=unicode)
    try:
        curses.wrapper(lambda window: Screen(window, replace(options), arguments.interval, pids).loop())
    except KeyboardInterrupt:
        pass
    except curses.error as error:
        print(f"aclpool top: this terminal cannot be drawn on ({error}); --once prints text", file=sys.stderr)
        return 2
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m acl.tools.top`."""
    parser = argparse.ArgumentParser(prog="aclpool top")
    add_arguments(parser)
    return run(parser.parse_args(argv))
