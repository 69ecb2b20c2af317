"""`aclpool view`: show a recording, a trace or a PyTorch memory snapshot as one page, which can be sent to others.

The page contains its data and loads nothing else.  Progress is written to standard error.  `-o -` writes the page,
and `--json -` the summary, to standard output.  `sources` reads files, `pack` packs the numbers for the page, and the
page's scripts are in `web/`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from acl.tools.outputs import check_output, check_plot, write_text

if TYPE_CHECKING:
    from acl.tools.view.history import History

__all__ = ["add_arguments", "add_parser", "main", "run"]

DESCRIPTION = """\
Turns a file into a picture of where the memory went: one HTML page that needs no network.

FILE is a recording (pool.record(), saved as .npz), a trace of allocations as `aclpool replay` takes
it, or a PyTorch memory snapshot (a pickle; it is read with built-in containers only).

The page shows memory over time stacked by tag, stream or size, the address space at any moment, who
holds it, what is reserved but not live, what happened (out of memory with its reasons), and every
allocation in a list with search. A trace without addresses is replayed through aclpool's own pool to get
some; the page says so, and --no-replay leaves them out.

  aclpool view run.npz                        writes run.html
  aclpool view run.npz -o - > page.html
  aclpool view run.npz --plot memory.svg      a picture that stands still; no page unless -o asks for it
  aclpool view run.npz --json -               the numbers
  aclpool view run.npz --trace run.json       for ui.perfetto.dev
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `aclpool view`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", metavar="FILE", help="a recording, a trace (.npz) or a PyTorch memory snapshot")
    parser.add_argument("-o", "--output", metavar="PAGE",
                        help="the page to write; - for standard output (default: FILE's name with .html)")
    parser.add_argument("--plot", action="append", default=[], metavar="PICTURE",
                        help="memory over time and who held the peak, as SVG")
    parser.add_argument("--by", choices=("tag", "stream", "size"), help="what the plot stacks by")
    parser.add_argument("--json", metavar="SUMMARY", help="write the summary as JSON; - for standard output")
    parser.add_argument("--trace", metavar="TRACE", help="write live and reserved bytes over time for Perfetto "
                        "(ui.perfetto.dev) or chrome://tracing, as JSON; - for standard output")
    parser.add_argument("--title", help="the page's title (default: FILE's name)")
    parser.add_argument("--no-replay", dest="replay", action="store_false",
                        help="leave a trace without addresses as it is")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand `view`."""
    add_arguments(subparsers.add_parser("view", help="a page that shows where the memory went"))


def check_arguments(arguments: argparse.Namespace) -> None:
    """Set the page's name if no output is given, and check the outputs.

    Every output must be writable, at most one may be standard output, and the page must not replace the input file.

    Raises
    ------
    ValueError
        The message names the argument, what was expected and what was given.
    """
    for file in arguments.plot:
        check_plot("--plot", file)
    if arguments.output is None and not arguments.plot and arguments.json is None and arguments.trace is None:
        arguments.output = str(Path(arguments.file).with_suffix(".html"))
    if arguments.output == arguments.json == "-":
        raise ValueError("-o and --json: expected at most one of them to be '-', got both")
    if arguments.trace == "-" and "-" in (arguments.output, arguments.json):
        raise ValueError("--trace: expected at most one output to be '-', got two")
    check_output("-o", arguments.output)
    check_output("--json", arguments.json)
    check_output("--trace", arguments.trace)
    if arguments.output not in (None, "-") and Path(arguments.output).resolve() == Path(arguments.file).resolve():
        raise ValueError(f"-o: expected a file other than the one that is read, got {arguments.output!r}")


class Progress:
    """Writes lines to standard error; parts of a long task overwrite each other on a terminal."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Print one line."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def part(self, done: int, of: int) -> None:
        """Show how far a replay has run; on a terminal only."""
        if self.terminal and not self.quiet:
            print(f"\r  {done / max(of, 1):4.0%}", end="\r", file=sys.stderr, flush=True)


def read_history(arguments: argparse.Namespace, progress: Progress) -> History:
    """Return the file's history; if the file has no addresses, with those of a replay unless `--no-replay` is given."""
    from acl.tools.view.replayed import place_blocks
    from acl.tools.view.sources import load_history

    history = load_history(arguments.file)
    progress.say(f"{history.name}: {history.events:,} events, {history.blocks:,} blocks")
    if history.address is None and arguments.replay:
        progress.say("no addresses in the file: replaying it through the pool ...")
        place_blocks(history, progress.part)
    if arguments.title:
        history.name = arguments.title
    return history


def write_outputs(arguments: argparse.Namespace, history: History, progress: Progress) -> None:
    """Write every output that the arguments ask for."""
    if arguments.json is not None:
        from acl.tools.view.summary import summary_of

        write_text(arguments.json, json.dumps(summary_of(history), indent=1) + "\n")
    if arguments.trace is not None:
        from acl.tools.view.perfetto import trace_document

        write_text(arguments.trace, json.dumps(trace_document(history)) + "\n")
        progress.say(f"wrote {'standard output' if arguments.trace == '-' else arguments.trace}")
    for file in arguments.plot:
        from acl.tools.plots import save
        from acl.tools.view.plot import draw

        save(draw(history, arguments.by), file)
        progress.say(f"wrote {file}")
    if arguments.output is not None:
        from acl import __version__
        from acl.tools.view.pack import pack_history
        from acl.tools.view.page import page

        text = page(history.name, pack_history(history, __version__))
        write_text(arguments.output, text)
        where = "standard output" if arguments.output == "-" else arguments.output
        progress.say(f"wrote {where}: {len(text) / (1 << 20):.1f} MiB")


def run(arguments: argparse.Namespace) -> int:
    """Read the file, then write the outputs. Return the exit status: 2 if an argument or the file is wrong, else 0."""
    progress = Progress(arguments.quiet)
    began = time.monotonic()
    try:
        check_arguments(arguments)
        write_outputs(arguments, read_history(arguments, progress), progress)
    except (ValueError, OSError) as error:
        print(f"aclpool view: {error}", file=sys.stderr)
        return 2
    progress.say(f"{time.monotonic() - began:.1f} s")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m acl.tools.view`."""
    parser = argparse.ArgumentParser(prog="aclpool view")
    add_arguments(parser)
    return run(parser.parse_args(argv))
