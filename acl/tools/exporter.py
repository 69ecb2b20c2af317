"""`aclpool exporter`: serve the metrics of all pools of a machine's services on one port.

A service is included if it was started with ACL_POOL_TOP=1 or has called acl.serve_top(), as for `aclpool top`.  Each
point has the labels `process` (the process id) and `worker` (ACL_POOL_WORKER of the service, else the process id).
"""

from __future__ import annotations

import argparse
import math
import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from pathlib import Path
from typing import Any

from acl.inside._text import printable
from acl.inside._top import FORMAT, process_lives

__all__ = ["add_parser", "page", "run"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAME = re.compile(r"aclpool_[a-z_]{1,80}")
LABEL = re.compile(r"[a-z_]{1,40}")
KINDS = ("gauge", "counter", "histogram")
ASKERS = 16                         # services that are asked at the same time, so that a hanging one delays no other


@dataclass
class Family:
    """One metric of the page: its kind, its help text and its lines."""

    kind: str
    help: str
    lines: list[str] = field(default_factory=list)


# ---- text ----

def help_text(text: str) -> str:
    """Return a help text with the escapes of Prometheus's text format."""
    return printable(text).replace("\\", "\\\\")


def escaped(text: str) -> str:
    """Return a label's value with the escapes of Prometheus's text format."""
    return help_text(text).replace('"', '\\"')


def number(value: Any) -> str:
    """Return a value as text.

    Raises
    ------
    ValueError
        It is not a number.
    """
    if type(value) not in (int, float) or math.isnan(value):
        raise ValueError(f"expected a number, got {value!r:.80}")
    return "+Inf" if value == math.inf else repr(value)


def labelled(name: str, labels: Iterable[tuple[str, str]]) -> str:
    """Return a metric's name with its labels, in the text format."""
    inner = ",".join(f'{label}="{escaped(value)}"' for label, value in labels)
    return f"{name}{{{inner}}}"


def histogram_lines(name: str, labels: list[tuple[str, str]], point: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one histogram: the cumulative buckets, the sum and the count."""
    bounds, counts = list(point["explicit_bounds"]), list(point["bucket_counts"])
    if len(counts) != len(bounds) + 1:
        raise ValueError(f"expected {len(bounds) + 1} buckets, got {len(counts)}")
    for bound, count in zip([*(f"{bound:.12g}" for bound in bounds), "+Inf"], accumulate(counts), strict=True):
        yield f"{labelled(f'{name}_bucket', [*labels, ('le', bound)])} {number(count)}"
    yield f"{labelled(f'{name}_sum', labels)} {number(point['sum'])}"
    yield f"{labelled(f'{name}_count', labels)} {number(point['count'])}"


def metric_lines(one: dict[str, Any], own: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of one metric of one process."""
    for point in one["points"]:
        for label, value in point["attributes"].items():
            if not LABEL.fullmatch(label) or not isinstance(value, str):
                raise ValueError(f"expected a label with a text, got {label!r:.80} with {value!r:.80}")
        labels = [*own, *point["attributes"].items()]
        if one["kind"] == "histogram":
            yield from histogram_lines(one["name"], labels, point)
        else:
            yield f"{labelled(one['name'], labels)} {number(point['value'])}"


def families_of(document: Any) -> dict[str, Family]:
    """Return one process's metrics by name.

    Raises
    ------
    ValueError, TypeError, KeyError, AttributeError
        The document is not a service's answer to `metrics`.
    """
    if any(document.get(key) != value for key, value in FORMAT.items()) or type(document["pid"]) is not int:
        raise ValueError("not an answer to `metrics`")
    own = [("process", str(document["pid"])), ("worker", str(document["worker"]))]
    found = {}
    for one in document["metrics"]:
        if not NAME.fullmatch(one["name"]) or one["kind"] not in KINDS:
            raise ValueError(f"expected a metric of acl.metrics, got {one['name']!r:.80}")
        found[one["name"]] = Family(one["kind"], help_text(one["description"]), list(metric_lines(one, own)))
    return found


# ---- asking ----

def told_by(path: Path) -> dict[str, Family] | None:
    """Ask one service; return its metrics, or None if it gives no valid answer."""
    from acl.tools.top.sample import exchange

    document = exchange(path, "metrics")
    try:
        return families_of(document)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def page(folder: Path | None = None) -> tuple[str, int]:
    """Return the metrics of all other services in Prometheus's text format, and how many services answered.

    Raises
    ------
    PermissionError
        The sockets' folder belongs to another user, or another user can write to it.
    """
    from acl.tools.top.sample import sockets

    paths = [path for path in sockets(None, folder) if not path.name.startswith(f"{os.getpid()}-")]
    with ThreadPoolExecutor(ASKERS) as askers:
        told = list(askers.map(told_by, paths))
    answered = sum(one is not None for one in told)
    silent = sum(one is None and path.exists() and process_lives(pid_of(path))
                 for path, one in zip(paths, told, strict=True))
    families = {
        "aclpool_exporter_processes": Family("gauge", "Services that answered.",
                                             [f"aclpool_exporter_processes {answered}"]),
        "aclpool_exporter_silent_processes": Family("gauge", "Services that are there and did not answer.",
                                                    [f"aclpool_exporter_silent_processes {silent}"]),
    }
    for one in filter(None, told):
        for name, family in one.items():
            known = families.setdefault(name, Family(family.kind, family.help))
            if known.kind == family.kind:       # another version of the package may have the metric with another kind
                known.lines += family.lines
    text = "".join(
        f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n" + "".join(f"{line}\n" for line in family.lines)
        for name, family in families.items())
    return text, answered


def pid_of(path: Path) -> int:
    """Return the process id in a socket's name; 0 if the name has none."""
    pid = path.name.split("-", 1)[0]
    return int(pid) if pid.isdigit() else 0


# ---- serving ----

class Handler(BaseHTTPRequestHandler):
    """Answers GET /metrics."""

    timeout = 10                    # seconds that a client may take for its request
    server_version = "aclpool"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the page, 404 for another path, or 500 if the sockets' folder is refused."""
        if self.path.split("?", 1)[0] not in ("/metrics", "/"):
            return self.send_error(404, "expected /metrics")
        try:
            body = page()[0].encode()
        except OSError as error:
            print(f"aclpool exporter: {printable(error)}", file=sys.stderr)
            return self.send_error(500, "the services cannot be asked")
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing, because Prometheus asks every few seconds."""


def listening(host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that listens on a host and port; the host is a name, or an IPv4 or IPv6 address."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    kind = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
    server: ThreadingHTTPServer = kind((host, port), Handler)
    return server


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `exporter` to the command line."""
    parser = subparsers.add_parser(
        "exporter", help="the metrics of running services, on one port", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=9400, help="default: 9400; 0 for any free one")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--once", action="store_true",
                        help="print the page once and exit; the exit status is 1 if no service answered")


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted, or print the page once.

    Return the exit status: 0; 1 if no service answered `--once`, or if the address cannot be used; 2 if the port is
    wrong or the sockets' folder is refused.
    """
    if not 0 <= arguments.port <= 65535:
        print(f"aclpool exporter: --port: expected 0 to 65535, got {arguments.port}", file=sys.stderr)
        return 2
    try:
        text, answered = page()             # also before serving, so that a refused folder is reported at the start
    except PermissionError as error:
        print(f"aclpool exporter: {printable(error)}", file=sys.stderr)
        return 2
    if arguments.once:
        print(text, end="")
        return 0 if answered else 1
    try:
        server = listening(arguments.host, arguments.port)
    except (OSError, UnicodeError) as error:
        print(f"aclpool exporter: cannot listen on --host {printable(arguments.host)} --port {arguments.port}: "
              f"{printable(error)}", file=sys.stderr)
        return 1
    with server:
        host = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
        print(f"http://{printable(host)}:{server.server_address[1]}/metrics", flush=True)
        server.serve_forever()
    return 0
