"""Fork: in the child, handles raise a clear error; the parent is not affected."""

import pytest
from support.child import run_python

PARENT = """
    import os, sys, warnings, acl
    warnings.simplefilter("ignore", DeprecationWarning)  # of CPython 3.12: threads are the point
    stream, event, buffer, host = acl.Stream(), acl.Event(), acl.Buffer(64), acl.HostBuffer(64)
    context = acl.Context.current()
    acl.copy(buffer, bytes(range(64)))

    def refused(use):
        try:
            use()
        except RuntimeError as error:
            assert "before a fork" in str(error) and "spawn" in str(error), error
            return True
        return False
"""

USES = """
        uses = [
            stream.query, stream.synchronize, stream.record, stream.close, lambda: stream.launch(print),
            event.query, event.record, event.synchronize, event.close, context.use,
            lambda: buffer.address, lambda: buffer.view(0, 1), buffer.close, host.close, lambda: memoryview(host),
            lambda: acl.to_bytes(buffer), lambda: acl.copy(buffer, host), lambda: acl.fill(buffer),
            acl.Stream, acl.Event, lambda: acl.Buffer(1), lambda: acl.HostBuffer(1), acl.Context,
            acl.Device(0).use, acl.Device(0).synchronize, acl.Device(0).memory_info, acl.Device.count,
        ]
"""


@pytest.mark.subprocess_heavy
def test_forked_child_cannot_use_objects_of_its_parent_and_the_parent_can() -> None:
    done = run_python(
        PARENT
        + """
    child = os.fork()
    if child == 0:
"""
        + USES
        + """
        answers = [refused(use) for use in uses]
        os._exit(0 if all(answers) else 1 + answers.index(False))
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
    print(acl.to_bytes(buffer) == bytes(range(64)), stream.query())
    stream.close(), event.close(), buffer.close(), host.close()
    """
    )
    assert done.stdout.split() == ["0", "True", "True"], done.stderr
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.subprocess_heavy
def test_child_that_deletes_the_parents_objects_ends_without_a_message() -> None:
    done = run_python(
        PARENT
        + """
    import time
    stream.launch(time.sleep, 0.2)
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        del stream, event, buffer, host, context
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
    stream.synchronize()
    """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


@pytest.mark.subprocess_heavy
def test_fork_before_the_first_use_lets_the_child_use_the_package() -> None:
    done = run_python("""
        import os, acl
        child = os.fork()
        with acl.Buffer(16) as buffer, acl.Stream() as stream:
            acl.copy(buffer, bytes(16), stream=stream)
        if child:
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status))
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


@pytest.mark.subprocess_heavy
def test_spawned_worker_processes_can_use_the_package() -> None:
    done = run_python("""
        import multiprocessing, acl
        acl.Stream().close()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(acl.Device.count))
    """)
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


@pytest.mark.subprocess_heavy
def test_forked_child_can_read_guard_reports_whichever_lock_was_held() -> None:
    done = run_python(
        """
    import ctypes, logging, os, signal, sys, threading, warnings, acl
    warnings.simplefilter("ignore", DeprecationWarning)
    logging.disable(logging.CRITICAL)
    pool = acl.Pool(0, debug="sample:2")
    stream = acl.Stream()
    pool.register(stream)
    door = acl.allocator_of(stream)
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(door.free)
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(door.alloc)
    freed = alloc(door.object, 100_000)
    free(door.object, freed)
    for _ in range(40_000):                     # its notes are overwritten, so a look for them is long
        free(door.object, alloc(door.object, 100))
    done = threading.Event()

    def work():
        while not done.is_set():
            free(door.object, freed)            # looked for under the lock

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    hung = 0
    for turn in range(20):
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, 20.0)      # ends a child that hangs
            acl.guard_findings()
            os._exit(0)
        hung += os.WIFSIGNALED(os.waitpid(child, 0)[1])
        if hung:
            break
    done.set()
    for thread in threads:
        thread.join()
    print(hung, flush=True)
    os._exit(0)
    """
    )
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr
