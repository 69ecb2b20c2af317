"""Ctrl-C in `Array.numpy` and `copy`: a signal that is sent to a child ends the wait while the work is still queued."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest
from support.child import child_environment

PROGRAM = """
import sys, threading, time
import numpy as np
import acl

acl.Device(0).use()
pool, stream, opened = acl.Pool(0), acl.Stream(0), threading.Event()
pool.register(stream)
array = pool.empty(4, "float32", stream)
acl.fill(array, 0, stream=stream)
target = bytearray(16)
stream.launch(opened.wait, 60)              # what is queued behind it waits
main = threading.main_thread().ident

def wait():
    {wait}

def within(frame):
    return frame is not None and (frame.f_code is wait.__code__ or within(frame.f_back))

def tell():
    while not within(sys._current_frames()[main]):
        time.sleep(0.001)
    time.sleep(0.02)                        # the call in `wait` has begun
    print("waiting", flush=True)

threading.Thread(target=tell).start()
try:
    wait()
    print("the wait ended by itself")
except KeyboardInterrupt:
    print("interrupted", opened.is_set(), stream.query(), flush=True)
opened.set()
stream.synchronize()
print("afterwards", array.numpy().tolist())
stream.close()
pool.close()
"""


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize("wait", ["array.numpy()", "acl.copy(target, array, stream=stream)"])
def test_wait_for_a_copy_ends_by_a_signal_while_the_copy_is_queued(wait: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM).replace("{wait}", wait)], text=True,
                             cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment())
    assert child.stdout is not None
    assert child.stdout.readline() == "waiting\n"
    child.send_signal(signal.SIGINT)
    out, error = child.communicate(timeout=300)
    interrupted, afterwards = out.splitlines()
    assert (interrupted, error) == ("interrupted False False", "")
    assert afterwards == "afterwards [0.0, 0.0, 0.0, 0.0]"
    assert child.returncode == 0
