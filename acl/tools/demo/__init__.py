"""`aclpool demo`: dynamic-shape inference on the simulator, with and without the pool, in seconds.

Two small models answer requests of changing shapes on several streams.  They are made here; nothing is downloaded.
The requests are served in three ways: without a registered allocator, with an allocator written in Python, and with
`acl.Pool`.  Every output is compared with an independent computation.  A table is written to standard output, the
timelines of memory to one HTML file, and the progress to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from acl.inside._text import write_replaced

if TYPE_CHECKING:
    from acl.tools.demo.measure import Measured

__all__ = ["add_arguments", "add_parser", "run"]

DESCRIPTION = """\
Serves requests of changing shapes to two small models (a transformer encoder and a detector-like
CNN) on the simulator, three ways: no allocator registered, an allocator written in Python and
registered through ctypes, and acl.Pool. Checks every output against ONNX Runtime where it is
installed and against NumPy otherwise. No network, no files but the report.

what is reported
  latency         from a request to its results on the host
  device mallocs  allocations of device memory; and those of them in the second half of the requests
  peak reserved   most device memory taken, by the simulator's own books
  waste           peak reserved / most memory asked for at a time
  callback        median time of one call of the allocator, as ACL sees it; and all of them together
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `aclpool demo`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--requests", type=int, default=400, metavar="N", help="how many (default: 400)")
    parser.add_argument("--streams", type=int, default=4, metavar="N",
                        help="streams, each with a thread that serves it (default: 4)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the shapes and inputs (default: 0)")
    parser.add_argument("--output", default="aclpool-demo.html", metavar="FILE",
                        help="the report (default: aclpool-demo.html)")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - for standard output")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand `demo`."""
    add_arguments(subparsers.add_parser("demo", help="dynamic-shape inference with and without the pool"))


def say(text: str = "", end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def progress(what: str, total: int) -> Callable[[int], None]:
    """Return a function that shows how many requests are done; without a terminal, it shows only the last number."""
    live = sys.stderr.isatty()

    def told(done: int) -> None:
        if live and (done % 10 == 0 or done == total):
            filled = 30 * done // total
            say(f"\r  {what:<28} [{'#' * filled}{'.' * (30 - filled)}] {done}/{total}", end="")
        if done == total:
            say("" if live else f"  {what:<28} {done}/{total}")

    return told


def measure_all(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[Measured]]:
    """Measure all ways. Return a description of the run, and each way's measurements."""
    import acl
    from acl import sim
    from acl.tools.demo import measure as demo_run
    from acl.tools.demo import models as demo_models

    models = {"encoder": demo_models.encoder(), "detector": demo_models.detector()}
    work = list(demo_models.requests(arguments.requests, arguments.seed))
    say(f"aclpool demo: {len(work)} requests in {len({r.shapes for r in work})} shapes, "
        f"{arguments.streams} streams, on the simulator")
    say("  computing the right answers", end="")
    judge, expected = demo_models.expected(models, work)
    say(f" ({judge})")
    sim.configure(latency="memory")
    try:
        found = [demo_run.measure(way, models, work, expected, arguments.streams, progress(what, len(work)))
                 for way, what in demo_run.WAYS.items()]
    finally:
        sim.configure(latency="off")
    # Without a registered allocator, no callback counts the requested bytes.  They are the same as with the pool.
    found[0].requested, found[0].requested_peak = found[-1].requested, found[-1].requested_peak
    about = {
        "version": acl.__version__, "requests": len(work), "streams": arguments.streams,
        "seed": arguments.seed, "shapes": len({r.shapes for r in work}), "checked_against": judge,
        "soc": sim.configuration().get("soc", ""), "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    return about, found


def run(arguments: argparse.Namespace) -> int:
    """Run the demo.  Return the exit status: 0, 1 if an output was wrong, or 2 if an argument is wrong."""
    from acl.tools.demo import report as demo_report
    from acl.tools.outputs import check_output

    for name, most in (("requests", 1_000_000), ("streams", 64)):
        if not 1 <= getattr(arguments, name) <= most:
            say(f"aclpool demo: --{name} must be from 1 to {most}, not {getattr(arguments, name)}")
            return 2
    try:
        check_output("--output", arguments.output)
        check_output("--json", arguments.json)
    except ValueError as error:
        say(f"aclpool demo: {error}")
        return 2
    # The models are ONNX files, which only the simulator reads.
    os.environ["ACL_BACKEND"] = "sim"
    # One thread, because NumPy's matrix products are small here: several threads would only wait for each other.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    started = time.perf_counter()
    about, found = measure_all(arguments)
    rows = [one.summary() for one in found]
    if arguments.json != "-":
        print(demo_report.table(rows))
        print(demo_report.verdict(rows, about["checked_against"]))
    for one in found:
        for wrong in one.wrong[:5]:
            say(f"WRONG, {one.way}: {wrong}")
    write_replaced(arguments.output, demo_report.page(about, found))
    say(f"report: {arguments.output}   ({time.perf_counter() - started:.1f} s)")
    if arguments.json:
        document = json.dumps({**about, "ways": rows, "report": arguments.output}, indent=2)
        if arguments.json == "-":
            print(document)
        else:
            write_replaced(arguments.json, document + "\n")
    return 1 if any(one.wrong for one in found) else 0
