"""`aclpool replay`: replay a trace of allocations against the pool and against other policies.

The pool is a real pool on the simulator, with one registered stream for each stream of the trace.  It is called
through the pointers that ACL gets.  For other policies, only their bookkeeping runs, with the events of the trace.
Progress is written to standard error.  `--json -` writes only the JSON document to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from acl.tools.replay.policies import POLICY_NAMES, load_policies

if TYPE_CHECKING:
    from acl.tools.replay.measure import Replay
    from acl.tools.replay.trace import Trace

__all__ = ["add_arguments", "add_parser", "main", "run"]

DESCRIPTION = """\
Replays a trace of allocations against the pool on the simulator, and against other policies.

TRACE is a recording (pool.record(), or ACL_POOL_RECORD=run.npz), any npz with the arrays op (0 alloc,
1 free), id, size and, if there are any, step and stream, a CSV or JSON with these names, or a memory
snapshot of PyTorch or torch_npu (a pickle; it is read with built-in containers only).  What a trace
leaves live is freed at its end.

what is reported
  ns_per_event        time for an allocation or a free, driver calls included: of the run in the middle
  ns_per_event_host   the same without the time spent in driver calls; beside it the best run, and all
  driver_ms_modelled  what the driver calls would take on hardware (see --latency)
  total_ms_modelled   that and the host's time of all events
  live_peak           most bytes asked for at one time, over all streams together
  reserved_peak       most physical bytes taken, by the simulator's own books
  ratio               reserved_peak / live_peak
  slow_path_share     share of the allocations that made a driver call, waited for a stream, or took the
                      pool itself over 1 us; in the rows of passes and of policies, the first two only
  p999_us, p9999_us,  time that 99.9 and 99.99 % of the pool's allocations do not exceed (1: none slow), and
  worst_us            the longest, on the simulator's driver
  failures            allocations that could not be served; times of such a row are not those of the
                      whole work, and are marked
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `aclpool replay`."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("trace", metavar="TRACE",
                        help="a trace (npz, CSV or JSON), a recording or a PyTorch memory snapshot")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON; - for standard output")
    parser.add_argument("--policy", metavar="LIST", default="",
                        help=f"compare with {', '.join(POLICY_NAMES)} or all (in a checkout); each is also run with "
                             "no more bytes than the pool reserved")
    parser.add_argument("--peers", metavar="LIST", default="none",
                        help="time real allocators too, in processes of their own: glibc,mimalloc,... as for bench")
    parser.add_argument("--library", action="append", default=[], metavar="NAME=FILE:MALLOC:FREE",
                        help="a shared library's allocator too")
    parser.add_argument("--subject", action="append", default=[], metavar="SPEC",
                        help="[NAME=]module:factory, or pool:granule=32MiB, too")
    parser.add_argument("--export", metavar="FILE", help="write the trace as .csv, .json or .npz, and replay nothing")
    parser.add_argument("--repeat", type=int, default=1, metavar="N",
                        help="passes over the trace; the later ones are the steady state")
    parser.add_argument("--runs", type=int, default=3, metavar="N",
                        help="fresh pools that are timed; the median counts (default: 3)")
    parser.add_argument("--limit", metavar="BYTES", help="the pool's limit, such as 8GiB")
    parser.add_argument("--suggest-limit", action="store_true",
                        help="name the limit that the load needs: the joint live peak over all streams, and the waste")
    parser.add_argument("--granule", metavar="BYTES", help="the pool's page size (default: 2MiB); auto: by the limit")
    parser.add_argument("--latency", metavar="FILE",
                        help="JSON with the price of driver calls: name to us or [us, us per MiB]")
    parser.add_argument("--plot", action="append", default=[], metavar="FILE",
                        help="plot live and reserved bytes over the events, as SVG")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand `replay`."""
    add_arguments(subparsers.add_parser("replay", help="a trace of allocations on the pool and on other policies"))


def chosen_policies(text: str) -> tuple[str, ...]:
    """Return the policies that `--policy` names.

    Raises
    ------
    ValueError
        No policy has a given name.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if "all" in names:
        return POLICY_NAMES
    for name in names:
        if name not in POLICY_NAMES:
            raise ValueError(f"--policy: expected some of {', '.join(POLICY_NAMES)} or all, got {name!r}")
    return names


MOST_STREAMS = 64


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


def document_of(trace: Trace, ours: Replay, policies: dict[str, tuple[Replay, Replay]]) -> dict[str, Any]:
    """Return the JSON document: the pool's numbers at the top level, the policies' below."""
    document: dict[str, Any] = {"trace": trace.name, "allocator": "aclpool", **ours.numbers}
    if policies:
        document["policies"] = {
            name: {**free.numbers, "limited": limited.numbers} for name, (free, limited) in policies.items()
        }
    return document


ROW = ("{:<16}", "{:>9}", "{:>9}", "{:>15}", "{:>10}", "{:>7}", "{:>8}", "{:>9}", "{:>12}", "{:>11}", "{:>11}", "{:>8}")
HEADINGS = ("", "ns/event", "host", "of runs", "reserved", "ratio", "steals", "slow", "driver calls", "modelled",
            "with host", "failed")


def line(name: str, numbers: dict[str, Any]) -> str:
    """Return one allocator's line of the table."""
    mark = "*" if numbers["failures"] else ""
    cells = (
        name, f"{numbers['ns_per_event']:,.1f}", f"{numbers['ns_per_event_host']:,.1f}",
        f"{min(numbers['ns_per_event_host_runs']):,.1f} to {max(numbers['ns_per_event_host_runs']):,.1f}",
        f"{numbers['reserved_peak'] / (1 << 20):,.0f} MiB", f"{numbers['ratio']:.3f}", f"{numbers['steals']:,}",
        f"{numbers['slow_path_share']:.3%}", f"{numbers['driver_calls']:,}",
        f"{numbers['driver_ms_modelled']:,.1f} ms{mark}", f"{numbers['total_ms_modelled']:,.1f} ms",
        f"{numbers['failures']:,}" if numbers["failures"] else "",
    )
    return "  ".join(form.format(cell) for form, cell in zip(ROW, cells, strict=True)).rstrip()


def allocator_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return lines for other real allocators; each was timed on the trace's events in its own process."""
    text = []
    for row in rows:
        if row.get("ns_per_event") is None:
            text.append(f"{row['allocator']}: {row.get('failed') or row.get('unavailable')}")
            continue
        runs = row["ns_per_event_runs"]
        kind, ratio = ("reserved", row["reserved_ratio"]) if row.get("reserved_ratio") else (
            "resident", row.get("rss_ratio"))
        held = f"  {kind} over live {ratio:.3f}" if ratio else ""
        text.append(f"{row['allocator']:<16}  {row['ns_per_event']:>9,.1f}  {'':>9}  "
                    f"{f'{min(runs):,.1f} to {max(runs):,.1f}':>15}{held}")
    return ["", "real allocators, thread CPU time of an event, driver calls included; warm", *text] if text else []


def limit_line(found: dict[str, Any] | None) -> str:
    """Return a line about the limit that the load needs."""
    from acl.inside._snapshot import readable

    if found is None:
        return "no limit can be suggested: the simulated device is too small for this load"
    return (f"the load needs a limit of {readable(found['limit'])} ({found['limit']} bytes): its live peak over all "
            f"streams is {readable(found['live_peak'])}, and {readable(found['waste'])} are waste")


def table(document: dict[str, Any]) -> str:
    """Return the results for a terminal."""
    text = [
        f"{document['trace']}: {document['events']:,} events on {document['streams']} stream(s), "
        f"live peak {document['live_peak'] / (1 << 20):,.0f} MiB"
        + (f" (each stream's own added up: {document['live_peak_sum'] / (1 << 20):,.0f})" if document["streams"] > 1
           else ""),
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
    if "suggested_limit" in document:
        text += ["", limit_line(document["suggested_limit"])]
    text += allocator_lines(document.get("allocators", []))
    if len(document["passes"]) > 1:
        text += ["", "pass  ns/event      host  driver calls    modelled    slow  ratio so far"]
        text += [f"{i:>4}  {p['ns_per_event']:>8.1f}  {p['ns_per_event_host']:>8.1f}  {p['driver_calls']:>12,}"
                 f"  {p['driver_ms_modelled']:>7.1f} ms  {p['slow_path_share']:.3%}  {p['ratio']:>12.3f}"
                 for i, p in enumerate(document["passes"], 1)]
    if "worst_us" in document:
        text += ["", f"of the pool's allocations 99.9 % took at most {document['p999_us']:,.0f} us, 99.99 % "
                 f"{document['p9999_us']:,.0f} us, the longest {document['worst_us']:,.0f} us"]
    return "\n".join(text)


def plot(trace: Trace, ours: Replay, policies: dict[str, tuple[Replay, Replay]], passes: int, file: str) -> None:
    """Plot live and reserved bytes over the events."""
    from acl.tools.plots import lines, save
    from acl.tools.replay.measure import POINTS

    live = trace.live()
    part = max(1, len(live) // POINTS)
    at = range(0, len(live), part)
    series = [("live", [i + n * len(live) for n in range(passes) for i in at],
               [float(live[i:i + part].max()) / (1 << 20) for _ in range(passes) for i in at])]
    for name, replay in (("reserved", ours), *((name, free) for name, (free, _) in policies.items())):
        series.append((name, replay.at, [size / (1 << 20) for size in replay.reserved]))
    save(lines(f"{trace.name}: live and reserved bytes", "events", "MiB", series), file)


def checked(arguments: argparse.Namespace) -> tuple[Trace, tuple[str, ...], Any, dict[str, Any]]:
    """Check the arguments. Return the trace, the policies, the prices and the pool's options.

    Raises
    ------
    ValueError, OSError
        An argument is wrong; the message names it.
    """
    from acl.pool._options import bytes_of
    from acl.tools.outputs import check_output, check_plot
    from acl.tools.replay.price import PRICES, load_prices
    from acl.tools.replay.trace import closed_trace, load_trace

    chosen = chosen_policies(arguments.policy)
    if chosen:
        load_policies()
    for name in ("repeat", "runs"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name}: expected at least 1, got {getattr(arguments, name)}")
    for file in arguments.plot:
        check_plot("--plot", file)
    check_output("--json", arguments.json)
    prices = load_prices(arguments.latency) if arguments.latency else PRICES
    options = {name: getattr(arguments, name) for name in ("limit", "granule") if getattr(arguments, name)}
    auto = options.get("granule") == "auto"
    if arguments.suggest_limit and "limit" in options:
        raise ValueError(f"--suggest-limit: expected no --limit beside it, got {arguments.limit!r}")
    if auto and "limit" not in options:
        raise ValueError("--granule: auto is chosen by --limit, and none is given")
    granule = bytes_of("2MiB" if auto else options.get("granule", "2MiB"), "--granule")
    if granule < 65536 or granule & (granule - 1):
        raise ValueError(f"--granule: expected a power of two of at least 64 KiB, got {arguments.granule!r}")
    if "limit" in options and bytes_of(options["limit"], "--limit") < granule:
        raise ValueError(f"--limit: expected at least one granule ({granule} bytes), got {arguments.limit!r}")
    trace = load_trace(arguments.trace)
    if trace.streams > MOST_STREAMS:
        raise ValueError(f"{trace.name}: {trace.streams} streams; at most {MOST_STREAMS} can be replayed")
    return closed_trace(trace), chosen, prices, options


def real_allocators(arguments: argparse.Namespace) -> list[Any]:
    """Return the allocators of --peers, --library and --subject, without aclpool, which is always replayed.

    Raises
    ------
    ValueError
        No allocator has a given name.
    """
    from acl.tools.bench.subjects import candidate_of, choose

    found = [] if arguments.peers == "none" else [each for each in choose(arguments.peers) if each.name != "aclpool"]
    specs = [f"library:{text}" for text in arguments.library] + arguments.subject
    return found + [candidate_of(spec) for spec in specs]


def export(arguments: argparse.Namespace) -> int:
    """Write the trace in another format. Return the exit status."""
    from acl.tools.outputs import check_output
    from acl.tools.replay.trace import export_trace, load_trace

    try:
        check_output("--export", arguments.export)
        export_trace(arguments.export, load_trace(arguments.trace))
    except (ValueError, OSError) as error:
        print(f"aclpool replay: {error}", file=sys.stderr)
        return 2
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Replay and report. Return the exit status."""
    from acl.tools.replay import measure as replay_run

    if arguments.export:
        return export(arguments)

    try:
        trace, names, prices, options = checked(arguments)
        candidates = real_allocators(arguments)
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
    if arguments.suggest_limit:
        from acl.pool._options import bytes_of
        from acl.tools.replay.limits import suggested_limit

        say("the limit ...")
        document["suggested_limit"] = suggested_limit(
            trace, ours.numbers, bytes_of(options.get("granule", "2MiB"), "--granule"), passes=arguments.repeat,
            options=options)
    if candidates:
        from acl.tools.bench import measure_trace

        document["allocators"] = measure_trace(trace, candidates, arguments.runs)
    lost = any("failed" in row for row in document.get("allocators", ()))
    if arguments.json == "-":
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        print(table(document))
        if arguments.json:
            from acl.inside._text import write_replaced

            write_replaced(arguments.json, json.dumps(document, indent=1) + "\n")
    for file_name in arguments.plot:
        plot(trace, ours, policies, arguments.repeat, file_name)
    return 1 if ours.numbers["failures"] or lost else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m acl.tools.replay`."""
    parser = argparse.ArgumentParser(prog="aclpool replay")
    add_arguments(parser)
    return run(parser.parse_args(argv))
