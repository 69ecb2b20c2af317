"""A question, its answer, and the line between the process that asks and the one that answers.

A question is a function `question(say) -> Answer`; it is named `module:function`.  It runs in a process of its own,
which writes lines of JSON into a pipe: `{"progress": text}`, and at the end `{"answer": {...}}`.
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

#: ok; note: works, but know it; bad: wrong; refused: the library said no; absent: something is not installed;
#: failed: an exception; crashed: a signal or an exit without an answer; hung: no answer in time; skipped: not asked.
VERDICTS = ("ok", "note", "bad", "refused", "absent", "failed", "crashed", "hung", "skipped")
Say = Callable[[str], None]
TAIL = 2000


class RefusedError(Exception):
    """A call that a question cannot do without has failed."""


@dataclass
class Answer:
    """What one question found out.

    Attributes
    ----------
    verdict : str
        One of `VERDICTS`.
    text : str
        The answer in words.
    facts : dict
        Numbers and lists by name, for machines.
    files : dict
        Files for the report's folder: name to text.
    output : str
        The end of what the process wrote to standard output and error, if it did not answer well.
    seconds : float
        How long it took.
    """

    verdict: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    output: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Question:
    """What is asked: its name, the function as `module:function`, its time limit in seconds, and what it is about."""

    name: str
    function: str
    limit: float
    about: str


def ask(question: Question, limit: float, say: Say = lambda text: None,
        environment: Mapping[str, str] | None = None) -> Answer:
    """Ask in a process of its own; an answer in any case, after `limit` seconds at the latest."""
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
    """Ask a part of a question in a process of its own, with other variables."""
    return ask(Question("", function, limit, ""), limit, environment=environment)


def listen(reader: int, process: subprocess.Popen[bytes], deadline: float, say: Say) -> Answer | None:
    """The answer that comes out of the pipe; None if the process ends without one, or in time says nothing."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reader, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            # A process that the question started may keep the pipe open: so its own end is looked for too.
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
    """End the process and those that it started; one that has answered gets a moment to exit by itself."""
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
    """The answer for a process that gave none."""
    code = process.returncode
    if late:
        return Answer("hung", f"no answer in {limit:.0f} s")
    if code < 0:
        return Answer("crashed", f"ended by {signal.Signals(-code).name}", {"signal": -code})
    return Answer("crashed", f"ended with status {code} and without an answer", {"status": code})


def tail(output: IO[bytes]) -> str:
    """The end of a file."""
    output.seek(0)
    return output.read()[-TAIL:].decode(errors="replace").strip()


def answered(function: Callable[[Say], Answer], say: Say) -> Answer:
    """What a question's function finds, or the exception that ended it as an answer."""
    try:
        return function(say)
    except (acl.AclError, MemoryError, RefusedError) as error:
        return Answer("refused", f"{type(error).__name__}: {error}", {"code": getattr(error, "code", None)})
    except ImportError as error:
        return Answer("absent", str(error))
    except Exception as error:
        return Answer("failed", f"{type(error).__name__}: {error}")


def main(arguments: Sequence[str]) -> None:
    """Answer one question: `MODULE:FUNCTION`, and the descriptor to write to."""
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
