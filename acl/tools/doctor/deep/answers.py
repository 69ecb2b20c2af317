"""A question, its answer, and the pipe between the process that asks and the process that answers.

A question is a function `question(say) -> Answer` with a name `module:function`.  It runs in a new process, which
writes lines of JSON to a pipe: `{"progress": text}` for each call of `say`, and at the end `{"answer": {...}}`.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any

import acl
from acl.tools.apart import python_command

__all__ = ["VERDICTS", "Answer", "Question", "RefusedError", "ask", "ask_child", "main"]

#: The verdicts.  ok; note: it works, with a restriction; bad: it is wrong; refused: the library returned an error;
#: absent: a program is not installed; failed: an exception; crashed: the process ended by a signal or without an
#: answer; hung: no answer in time; skipped: the question was not asked.
VERDICTS = ("ok", "note", "bad", "refused", "absent", "failed", "crashed", "hung", "skipped")
Say = Callable[[str], None]
TAIL = 2000


class RefusedError(Exception):
    """Raised if a call has failed that the question needs."""


@dataclass
class Answer:
    """The answer to a question.

    Attributes
    ----------
    verdict : str
        One of `VERDICTS`.
    text : str
        The answer in words.
    facts : dict
        Numbers and lists by name, for programs.
    files : dict
        Files for the report's folder: text by name.
    output : str
        The last `TAIL` bytes that the process wrote to stdout and stderr; empty if the verdict is ok or note.
    seconds : float
        Seconds until the answer.
    """

    verdict: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    output: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Question:
    """A question: its name, its function as `module:function`, its time limit in seconds, and its subject."""

    name: str
    function: str
    limit: float
    about: str


def ask(question: Question, limit: float, say: Say = lambda text: None,
        environment: Mapping[str, str] | None = None) -> Answer:
    """Run a question in a new process; return its answer, or, after `limit` seconds, an answer with verdict "hung"."""
    started = time.monotonic()
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            python_command(__name__, question.function, str(writer)), pass_fds=(writer,), stdin=subprocess.DEVNULL,
            stdout=output, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **(environment or {})})
        os.close(writer)
        try:
            found = listen(reader, process, started + limit, say)
        finally:
            os.close(reader)
            end_group(process)
        if found is None:
            found = unanswered(process, limit, time.monotonic() - started >= limit)
        if found.verdict not in ("ok", "note"):
            found.output = tail(output)
    found.seconds = round(time.monotonic() - started, 3)
    return found


def ask_child(function: str, limit: float, environment: Mapping[str, str]) -> Answer:
    """Run a part of a question in a new process, with other environment variables; return its answer."""
    return ask(Question("", function, limit, ""), limit, environment=environment)


def listen(reader: int, process: subprocess.Popen[bytes], deadline: float, say: Say) -> Answer | None:
    """Return the answer from the pipe; None if the process ends without an answer, or the deadline is over."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            # A process that the question started may keep the pipe open.  So test whether the question itself has
            # ended.
            ended = process.poll() is not None
            if not selector.select(0 if ended else min(left, 0.1)):
                if ended:
                    return None
                continue
            data = os.read(reader, 1 << 16)
            if not data:
                return None
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                told = json.loads(line)
                if "answer" in told:
                    return Answer(**told["answer"])
                say(told["progress"])
    return None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and the processes that it started.  It first gets half a second to exit by itself."""
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def unanswered(process: subprocess.Popen[bytes], limit: float, late: bool) -> Answer:
    """Return an answer for a process that gave none."""
    code = process.returncode
    if late:
        return Answer("hung", f"no answer in {limit:.0f} s")
    if code < 0:
        return Answer("crashed", f"ended by {signal.Signals(-code).name}", {"signal": -code})
    return Answer("crashed", f"ended with status {code} and without an answer", {"status": code})


def tail(output: IO[bytes]) -> str:
    """Return the last `TAIL` bytes of a file as text."""
    output.seek(0)
    return output.read()[-TAIL:].decode(errors="replace").strip()


def answered(function: Callable[[Say], Answer], say: Say) -> Answer:
    """Call a question's function; return its answer, or its exception as an answer."""
    try:
        return function(say)
    except (acl.AclError, MemoryError, RefusedError) as error:
        return Answer("refused", f"{type(error).__name__}: {error}", {"code": getattr(error, "code", None)})
    except ImportError as error:
        return Answer("absent", str(error))
    except Exception as error:
        return Answer("failed", f"{type(error).__name__}: {error}")


def main(arguments: Sequence[str]) -> None:
    """Answer one question.  The arguments are `MODULE:FUNCTION` and the file descriptor of the pipe."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    name, writer = arguments[0], int(arguments[1])
    sys.path.append(os.getcwd())

    def send(told: dict[str, Any]) -> None:
        data = json.dumps(told).encode() + b"\n"
        while data:
            data = data[os.write(writer, data):]

    module, _, function = name.partition(":")
    answer = answered(getattr(importlib.import_module(module), function), lambda text: send({"progress": text}))
    send({"answer": asdict(answer)})
