"""Questions of the doctor that hang, crash, refuse or print too much, for test_doctor_deep.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import acl
from acl.tools.doctor.deep.answers import Answer, Say


def good(say: Say) -> Answer:
    say("half of it")
    return Answer("ok", "fine", {"pid": os.getpid()})


def hangs(say: Say) -> Answer:
    print("before it hung", flush=True)
    say("started")
    time.sleep(600)
    return Answer("ok", "")


def hangs_and_ignores(say: Say) -> Answer:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return hangs(say)


def crashes(say: Say) -> Answer:
    print("before it crashed", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    return Answer("ok", "")


def leaves(say: Say) -> Answer:
    os._exit(7)


def leaves_a_child(say: Say) -> Answer:
    """End without an answer, and leave a child process that keeps the pipe open."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
    os._exit(7)


def is_refused(say: Say) -> Answer:
    with acl.Device(0):
        acl.Buffer(1 << 20)
    return Answer("ok", "allocated")


def raises(say: Say) -> Answer:
    raise ZeroDivisionError("in a question")


def lacks(say: Say) -> Answer:
    import a_package_that_is_not_there  # type: ignore[import-not-found]

    return Answer("ok", str(a_package_that_is_not_there))


def says_much(say: Say) -> Answer:
    """Write more than a pipe holds to every output."""
    for number in range(3000):
        print("x" * 100)
        say(f"{number} " + "y" * 100)
    return Answer("bad", "much", {"many": ["z" * 100] * 3000})
