"""`aclpool replay`: a trace of allocations, replayed against the pool and against other policies.

The pool is the real one, on the simulator, one registered stream per stream of the trace; it is called
through the pointers that ACL got. Other policies are bookkeeping only, on the same events. Progress
goes to standard error; `--json -` prints the JSON document to standard output and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from acl.tools.replay_run import Replay
    from acl.tools.replay_trace import Trace

__all__ = ["add_arguments", "add_parser", "main", "run"]

POLICY_NAMES = ("exact", "pow2", "torch", "ge", "arena", "buddy")
DESCRIPTION = """\
Replays a trace of allocations against the pool on the simulator, and against other policies.

TRACE is a recording (pool.record(), or ACL_POOL_RECORD=run.npz), any npz with the arrays op (0 alloc,
1 free), id, size and, if there are any, step and stream, or a memory snapshot of PyTorch or torch_npu
(a pickle; it is read with built-in containers only).  What a trace leaves live is freed at its end.

what is reported
  ns_per_event        time for an allocation or a free, driver calls included
  ns_per_event_host   the same without the time spent in driver calls
  driver_ms_modelled  what the driver calls would take on hardware (see --latency)
  live_peak           most bytes asked for at one time (the sum over streams of each one's own)
  reserved_peak       most physical bytes taken, by the simulator's own books
  ratio               reserved_peak / live_peak
  slow_path_share     share of the allocations that made a driver call or waited for a stream
  failures            allocations that could not be served; times of such a row are not those of the
                      whole work, and are marked
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `aclpool replay`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("trace", metavar="TRACE", help="an npz trace or a PyTorch memory snapshot")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - for standard output")
    parser.add_argument("--policy", metavar="LIST", default="",
                        help=f"compare with {', '.join(POLICY_NAMES)} or all; each is also run with "
                             "no more bytes than the pool reserved")
    parser.add_argument("--repeat", type=int, default=1, metavar="N",
                        help="passes over the trace; the later ones are the steady state")
    parser.add_argument("--runs", type=int, default=3, metavar="N",
                        help="fresh pools that are timed; the best counts (default: 3)")
    parser.add_argument("--limit", metavar="BYTES", help="the pool's limit, such as 8GiB")
    parser.add_argument("--granule", metavar="BYTES", help="the pool's page size (default: 2MiB); auto: by the limit")
    parser.add_argument("--latency", metavar="FILE",
                        help="JSON with the price of driver calls: name to us or [us, us per MiB]")
    parser.add_argument("--plot", action="append", default=[], metavar="FILE",
                        help="plot live and reserved bytes over the events; .svg or .png")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The command line of `aclpool replay`."""
    add_arguments(subparsers.add_parser("replay", help="a trace of allocations on the pool and on other policies"))


def chosen_policies(text: str) -> tuple[str, ...]:
    """The policies that `--policy` names.

    Raises
    ------
    ValueError
        For one that there is not.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if "all" in names:
        return POLICY_NAMES
    for name in names:
        if name not in POLICY_NAMES:
            raise ValueError(f"--policy: expected some of {', '.join(POLICY_NAMES)} or all, got {name!r}")
    return names


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def document_of(trace: Trace, ours: Replay, policies: dict[str, tuple[Replay, Replay]]) -> dict[str, Any]:
    """The JSON document: the pool's numbers on top, the policies' below."""
    document: dict[str, Any] = {"trace": trace.name, "allocator": "aclpool", **ours.numbers}
    if policies:
        document["policies"] = {
            name: {**free.numbers, "limited": limited.numbers} for name, (free, limited) in policies.items()
        }
    return document


ROW = ("{:<16}", "{:>9}", "{:>9}", "{:>10}", "{:>7}", "{:>8}", "{:>9}", "{:>12}", "{:>11}", "{:>8}")
HEADINGS = ("", "ns/event", "host", "reserved", "ratio", "steals", "slow", "driver calls", "modelled", "failed")


def line(name: str, numbers: dict[str, Any]) -> str:
    """One allocator's line of the table."""
    mark = "*" if numbers["failures"] else ""
    cells = (
        name, f"{numbers['ns_per_event']:,.1f}", f"{numbers['ns_per_event_host']:,.1f}",
        f"{numbers['reserved_peak'] / (1 << 20):,.0f} MiB", f"{numbers['ratio']:.3f}", f"{numbers['steals']:,}",
        f"{numbers['slow_path_share']:.3%}", f"{numbers['driver_calls']:,}",
        f"{numbers['driver_ms_modelled']:,.1f} ms{mark}", f"{numbers['failures']:,}" if numbers["failures"] else "",
    )
    return "  ".join(form.format(cell) for form, cell in zip(ROW, cells, strict=True)).rstrip()


def table(document: dict[str, Any]) -> str:
    """The results for a terminal."""
    text = [
        f"{document['trace']}: {document['events']:,} events on {document['streams']} stream(s), "
        f"live peak {document['live_peak'] / (1 << 20):,.0f} MiB",
        "  ".join(form.format(heading) for form, heading in zip(ROW, HEADINGS, strict=True)),
        line("aclpool", document),
    ]
    short = bool(document["failures"])
    for name, numbers in document.get("policies", {}).items():
        text += [line(name, numbers), line("  as much as us", numbers["limited"])]
        if numbers["failures"] or numbers["limited"]["failures"]:
            short = True
    if short:
        text += ["", "* some allocations failed: the time is not that of the whole work"]
    if len(document["passes"]) > 1:
        text += ["", "pass  ns/event      host  driver calls    modelled    slow  ratio so far"]
        text += [f"{i:>4}  {p['ns_per_event']:>8.1f}  {p['ns_per_event_host']:>8.1f}  {p['driver_calls']:>12,}"
                 f"  {p['driver_ms_modelled']:>7.1f} ms  {p['slow_path_share']:.3%}  {p['ratio']:>12.3f}"
                 for i, p in enumerate(document["passes"], 1)]
    return "\n".join(text)


def plot(trace: Trace, ours: Replay, policies: dict[str, tuple[Replay, Replay]], passes: int, file: str) -> None:
    """Live and reserved bytes over the events."""
    from acl.tools.plots import lines, save
    from acl.tools.replay_run import POINTS

    live = trace.live()
    part = max(1, len(live) // POINTS)
    at = range(0, len(live), part)
    series = [("live", [i + n * len(live) for n in range(passes) for i in at],
               [float(live[i:i + part].max()) / (1 << 20) for _ in range(passes) for i in at])]
    for name, replay in (("reserved", ours), *((name, free) for name, (free, _) in policies.items())):
        series.append((name, replay.at, [size / (1 << 20) for size in replay.reserved]))
    save(lines(f"{trace.name}: live and reserved bytes", "events", "MiB", series), file)


def checked(arguments: argparse.Namespace) -> tuple[Trace, tuple[str, ...], Any, dict[str, Any]]:
    """The arguments' meaning: trace, policies, prices, options of the pool.

    Raises
    ------
    ValueError, OSError
        Naming the argument and what is wrong with it.
    """
    from acl._options import bytes_of
    from acl.tools.outputs import check_output
    from acl.tools.replay_price import PRICES, load_prices
    from acl.tools.replay_trace import closed_trace, load_trace

    policies = chosen_policies(arguments.policy)
    for name in ("repeat", "runs"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name}: expected at least 1, got {getattr(arguments, name)}")
    for file in arguments.plot:
        if not file.endswith((".svg", ".png")):
            raise ValueError(f"--plot: expected a file ending in .svg or .png, got {file!r}")
        check_output("--plot", file)
    check_output("--json", arguments.json)
    prices = load_prices(arguments.latency) if arguments.latency else PRICES
    options = {name: getattr(arguments, name) for name in ("limit", "granule") if getattr(arguments, name)}
    auto = options.get("granule") == "auto"
    if auto and "limit" not in options:
        raise ValueError("--granule: auto is chosen by --limit, and none is given")
    granule = bytes_of("2MiB" if auto else options.get("granule", "2MiB"), "--granule")
    if granule < 65536 or granule & (granule - 1):
        raise ValueError(f"--granule: expected a power of two of at least 64 KiB, got {arguments.granule!r}")
    if "limit" in options and bytes_of(options["limit"], "--limit") < granule:
        raise ValueError(f"--limit: expected at least one granule ({granule} bytes), got {arguments.limit!r}")
    return closed_trace(load_trace(arguments.trace)), policies, prices, options


def run(arguments: argparse.Namespace) -> int:
    """Replay and report; the exit status."""
    from acl.tools import replay_run

    try:
        trace, names, prices, options = checked(arguments)
    except (ValueError, OSError) as error:
        print(f"aclpool replay: {error}", file=sys.stderr)
        return 2
    os.environ.setdefault("ACL_BACKEND", "sim")
    say(f"{trace.name}: {len(trace):,} events, {trace.streams} stream(s); the pool ...")
    ours = replay_run.replay_pool(trace, prices, passes=arguments.repeat, runs=arguments.runs, options=options)
    policies = {}
    for name in names:
        say(f"policy {name} ...")
        policies[name] = (
            replay_run.replay_policy(name, trace, prices, passes=arguments.repeat),
            replay_run.replay_policy(name, trace, prices, passes=arguments.repeat,
                                     limit=max(1, ours.numbers["reserved_peak"])),
        )
    document = document_of(trace, ours, policies)
    if arguments.json == "-":
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        print(table(document))
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
                file.write("\n")
    for file_name in arguments.plot:
        plot(trace, ours, policies, arguments.repeat, file_name)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m acl.tools.replay`."""
    parser = argparse.ArgumentParser(prog="aclpool replay")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
