"""Damaged and malicious input for the readers in Python: recordings, traces, snapshots, answers of a service to
`aclpool top`, and requests by HTTP.

    python tests/fuzz/readers.py [READER ...] [--seconds N] [--seed N] [--keep FOLDER]

Each reader has correct inputs.  A case is a correct input with changes: bytes are changed, cut, repeated or joined to
another input, or values are replaced before the input is written.  A reader must treat a case as its documentation
says for wrong input.  Another exception, a signal, more than CASE_SECONDS or more than MOST_MIB is a finding.  A child
process runs the cases.  It first writes each case to a file, so that a case that ends the process is not lost.  For
each finding a line is printed, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import pickle
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

os.environ.update(ACL_BACKEND="sim")

import numpy as np

import acl
from acl.tools import cli
from acl.tools.replay.trace import TraceError, load_trace
from acl.tools.top import sample as top_sample
from acl.tools.top import text as top_text
from acl.tools.view.sources import load_history

__all__ = ["READERS", "main"]

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).with_name("corpus")
CASE_SECONDS, MOST_MIB = 30, 1536
#: Values that are put in place of correct ones.
ODD: list[Any] = [
    None, True, 0, 1, -1, 63, 64, 255, 1 << 31, (1 << 63) - 1, 1 << 63, 1 << 64, 10**400, 0.5, -0.0, 1e308,
    float("inf"), float("nan"),
    "", "x" * 5000, "\x1b[2J\x00\udc80\u202e</script>", [], {}, [[]], {"a": []}, ["a"], {"size": -1},
]
ODD_TYPES = ["O", "S0", "U3", "V8", "?", "i1", "<u8", ">i8", "f8", "c16", "M8[s]", "i8,f4"]

Case = tuple[str, bytes]


# ---- changing correct inputs

def changed_bytes(dice: random.Random, whole: bytes, other: bytes) -> bytes:
    """Return the bytes with flipped, removed, repeated or spliced parts."""
    data = bytearray(whole)
    for _ in range(dice.choice([1, 1, 2, 5, 20])):
        at = dice.randrange(len(data)) if data else 0
        size = dice.choice([1, 2, 4, 8, 64, 1000])
        match dice.randrange(6):
            case 0 | 1 if data:
                data[at] = dice.choice([0, 1, 127, 128, 255, dice.randrange(256), data[at] ^ 1 << dice.randrange(8)])
            case 2:
                del data[at:at + size]
            case 3:
                data[at:at] = data[at:at + size] * dice.choice([1, 2, 50])
            case 4 if other:
                start = dice.randrange(len(other))
                data[at:at + size] = other[start:start + size]
            case _:
                del data[at:]
                data += b"" if dice.random() < 0.5 else other[at:]
    return bytes(data)


def places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a tree of dicts and lists: the container and the key in it."""
    if depth > 30:
        return
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield value, key
        yield from places(inner, depth + 1)


def changed_tree(dice: random.Random, whole: Any) -> Any:
    """Return a tree of dicts and lists with values replaced, removed or moved."""
    made = copy.deepcopy(whole)
    for _ in range(dice.choice([1, 1, 2, 4])):
        found = list(places(made))
        if not found:
            return dice.choice(ODD)
        holder, key = dice.choice(found)
        match dice.randrange(5):
            case 0:
                del holder[key]
            case 1:
                other, at = dice.choice(found)
                holder[key] = copy.deepcopy(other[at]) if isinstance(other, dict) and at in other else None
            case 2 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case _:
                holder[key] = copy.deepcopy(dice.choice(ODD))
    return made


def changed_array(dice: random.Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made = array.copy()
    match dice.randrange(6):
        case 0 | 1 if made.size and made.dtype.kind in "iu":
            most = np.iinfo(made.dtype)
            made.flat[dice.randrange(made.size)] = dice.choice([most.min, most.max, 0, 1, most.max - 1])
        case 2:
            made = made[:dice.randrange(made.size + 1)] if made.ndim else made.reshape(1)
        case 3:
            made = made.reshape((1, *made.shape)) if dice.random() < 0.5 else np.concatenate([made.ravel()] * 2)
        case 4:
            made = np.zeros(made.shape, dice.choice(ODD_TYPES))
        case _:
            raw = changed_bytes(dice, made.tobytes(), b"\xff" * 16)
            made = np.frombuffer(raw[:len(raw) // made.itemsize * made.itemsize], made.dtype)
    return made


# ---- readers: each has correct inputs, a way to make cases of them, and a check of the result

class Files:
    """Recordings, traces and snapshots, read by `aclpool replay` and `aclpool view`."""

    endings = ("npz", "pickle")

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder, self.dice = folder, dice
        self.kept = [(one.suffix[1:], one.read_bytes()) for one in sorted((CORPUS / "files").glob("*"))]
        self.whole = self.recorded(folder)
        self.arrays = dict(np.load(folder / "right.npz"))
        self.tree = pickle.loads(self.whole["pickle"])

    @staticmethod
    def recorded(folder: Path) -> dict[str, bytes]:
        with acl.Pool(0, limit="16MiB") as pool, acl.Stream(0) as stream:
            pool.register(stream)
            with pool.record(stacks="python") as recording:
                kept = [pool.alloc(size, stream, tag=tag) for size in (64, 3000, 2 << 20) for tag in ("kv", "<b>", "")]
                kept.pop(1).close()
                for one in kept:
                    one.close()
            for ending in Files.endings:
                recording.save(folder / f"right.{ending}")
        return {ending: (folder / f"right.{ending}").read_bytes() for ending in Files.endings}

    def case(self) -> Case:
        if self.kept:
            return self.kept.pop()
        ending = self.dice.choice(self.endings)
        if self.dice.random() < 0.4:
            return ending, changed_bytes(self.dice, self.whole[ending], self.whole[self.dice.choice(self.endings)])
        if ending == "pickle":
            return ending, pickle.dumps(changed_tree(self.dice, self.tree), self.dice.choice([2, 4]))
        arrays = dict(self.arrays)
        for _ in range(self.dice.choice([1, 1, 2])):
            name = self.dice.choice(sorted(arrays))
            if self.dice.random() < 0.15 and len(arrays) > 1:
                del arrays[name]
            else:
                arrays[name] = changed_array(self.dice, arrays[name])
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        return ending, buffer.getvalue()

    def read(self, case: Case) -> None:
        file = self.folder / f"case.{case[0]}"
        file.write_bytes(case[1])
        good = 0
        for reader in (load_trace, load_history):
            try:
                reader(file)
                good += 1
            except TraceError as error:
                assert len(str(error)) < 600, f"an endless message: {error!s:.600}"
        if good == 2 and self.dice.random() < 0.2:
            for command in (["view", str(file), "-q", "-o", str(self.folder / "page.html")],
                            ["view", str(file), "-q", "--trace", str(self.folder / "trace.json")],
                            ["replay", str(file), "--limit", "64MiB", "--runs", "1"]):
                ended(command)


def ended(command: list[str]) -> None:
    """Run a tool; check that it documents its exit status, and that it wrote no traceback."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        try:
            status: Any = cli.main(command)
        except SystemExit as end:
            status = end.code
    assert status in (0, 1, 2) and "usage:" not in error.getvalue(), f"{command}: {status}: {error.getvalue()}"
    assert "Traceback" not in error.getvalue(), error.getvalue()


class Top:
    """Answers of a process to `aclpool top`."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        from acl.inside import _top

        self.folder, self.dice = folder, dice
        self.path = folder / f"{os.getpid()}-a.sock"
        with acl.Pool(0) as pool, pool.alloc(64, tag="kv"):
            self.tree = json.loads(json.dumps(_top.snapshot()))
        self.served: list[bytes] = []
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(str(self.path))
        self.server.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            caller, _ = self.server.accept()
            with caller:
                try:
                    caller.sendall(self.served[-1])
                except OSError:
                    pass

    def case(self) -> Case:
        if self.dice.random() < 0.03:
            return "json", b"[" * 100_000
        tree = self.tree if self.dice.random() < 0.3 else changed_tree(self.dice, self.tree)
        data = json.dumps(tree).encode("utf-8", "surrogatepass")
        return "json", data if self.dice.random() < 0.6 else changed_bytes(self.dice, data, b"[{\xff\x1b\"")

    def read(self, case: Case) -> None:
        self.served.append(case[1])
        document = top_sample.ask(self.path)
        if document is not None:
            answers = [top_sample.Answer(int(document["pid"]), document)]
            shown = top_text.lines(top_sample.rates_between(answers, answers), top_text.Options())
            text = "".join(line.text for line in shown)
            assert all(letter.isprintable() for letter in text), f"printed: {text!r:.500}"
        del self.served[:-1]


class Http:
    """Requests to the example service, which must answer with 2xx or 4xx and continue to serve."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        sys.path.insert(0, str(ROOT / "examples/serving"))
        import app
        import task

        from acl.serving import Engine, Options

        self.dice, self.folder = dice, folder
        self.engine = Engine(Options(device=0))
        served = task.TextTask()
        self.engine.load("text", served)
        listener = app.listening("127.0.0.1", 0)
        self.address = listener.getsockname()
        import uvicorn

        config = uvicorn.Config(app.application(self.engine, served), log_level="critical")
        self.server = app.Server(self.engine, config, grace_s=0)
        threading.Thread(target=self.server.run, args=([listener],), daemon=True).start()
        body = json.dumps({"input": "hello"})
        self.right = [
            f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode(),
            b"GET /memory HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            b"5\r\n{\"inp\r\nb\r\nut\": \"abc\"}\r\n0\r\n\r\n",
        ]
        for request in self.right:              # check that the service accepts the correct requests
            assert (answer := self.asked(request, whole=True)).startswith(b"HTTP/1.1 200"), answer[:500]

    def case(self) -> Case:
        whole = self.dice.choice(self.right)
        if self.dice.random() < 0.5:
            tree = changed_tree(self.dice, {"input": "hello", "more": [1]})
            body = json.dumps(tree).encode("utf-8", "surrogatepass")
            if self.dice.random() < 0.3:
                body = changed_bytes(self.dice, body, b"[[[[[[[[")
            head = (f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n")
            return "http", head.encode() + body
        return "http", changed_bytes(self.dice, whole, self.dice.choice(self.right))

    def asked(self, data: bytes, *, whole: bool = False) -> bytes:
        """Return the answer.  If the request may be incomplete (not `whole`), close the sending side after it.

        Otherwise the server would wait for more bytes.
        """
        with socket.create_connection(self.address, 10) as caller:
            answer = b""
            try:
                caller.sendall(data)
                if not whole:
                    caller.shutdown(socket.SHUT_WR)
                while part := caller.recv(1 << 16):
                    answer += part
            except (ConnectionError, OSError) as error:
                if isinstance(error, TimeoutError):
                    raise
        return answer

    def read(self, case: Case) -> None:
        answer = self.asked(case[1])
        assert not answer.startswith(b"HTTP/1.1 5"), answer[:500]
        if self.dice.random() < 0.05:
            well = self.asked(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert well.startswith(b"HTTP/1.1 200"), well[:500]


READERS: dict[str, Callable[[Path, random.Random], Any]] = {"files": Files, "top": Top, "http": Http}


# ---- running cases

class Stuck(Exception):
    """A case took longer than CASE_SECONDS."""


def on_alarm(number: int, frame: object) -> None:
    raise Stuck(f"a case took {CASE_SECONDS} s")


def run_cases(name: str, seed: int, seconds: float, cases: float, folder: Path) -> int:
    """Run `cases` cases, or for `seconds`; return 1 at the first finding, and leave its file in the folder."""
    warnings.simplefilter("error")
    dice = random.Random(seed)
    reader = READERS[name](folder, dice)
    signal.signal(signal.SIGALRM, on_alarm)
    count, due = 0, time.monotonic() + seconds
    while time.monotonic() < due and count < cases:
        case = reader.case()
        (folder / "now").write_bytes(case[1])
        signal.alarm(CASE_SECONDS)
        try:
            reader.read(case)
        except BaseException:
            print(traceback.format_exc()[-4000:], file=sys.stderr)
            return 1
        finally:
            signal.alarm(0)
        count += 1
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        if most > MOST_MIB:
            print(f"{most} MiB of memory")
            return 1
    print(f"{name}: {count} cases, seed {seed}, at most {most} MiB")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description="Damaged input for the readers in Python.")
    parser.add_argument("readers", nargs="*", metavar="READER", help=", ".join(READERS))
    parser.add_argument("--seconds", type=float, default=600, help="for each reader (default: 600)")
    parser.add_argument("--cases", type=float, default=float("inf"), help="for each reader (default: all in that time)")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--keep", type=Path, default=Path("."), help="where cases that fail are put")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    choice = parser.parse_args(arguments)
    if choice.inside:
        status = run_cases(choice.readers[0], choice.seed, choice.seconds, choice.cases, choice.inside)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)        # so that the exit does not wait for the service's threads
    failed = 0
    for name in choice.readers or READERS:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, __file__, name, "--inside", folder, "--seed", str(choice.seed),
                       "--seconds", str(choice.seconds), "--cases", str(choice.cases)]
            done = subprocess.run(command, env={**os.environ, "ACL_POOL_TOP_DIR": folder})
            if done.returncode != 0:
                kept = choice.keep / f"case-{name}-{choice.seed}"
                now = Path(folder) / "now"
                if now.exists():                # the file is missing if no case has begun
                    kept.write_bytes(now.read_bytes())
                print(f"{name}: status {done.returncode}{f', see {kept}' if now.exists() else ''}")
                failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
