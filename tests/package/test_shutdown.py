"""The interpreter exits silently, with code 0 and without a hang, whatever objects are alive."""

import subprocess
from pathlib import Path

import pytest
from support.child import run_python

import acl.sim

ALIVE = """
    import acl
    stream, event, context = acl.Stream(), acl.Event(timing=True), acl.Context(0)
    buffer, host = acl.Buffer(1 << 20), acl.HostBuffer(1 << 20)
    array, part = host.numpy(), buffer.view(10, 10)
    acl.copy_async(buffer, host, stream.default())
"""

CASES = {
    "live objects": ALIVE,
    "live objects in a cycle": ALIVE
    + """
    class Holder: pass
    holder = Holder()
    holder.everything = [holder, stream, event, context, buffer, host, array, part]
    """,
    "live objects in a module that outlives ours": ALIVE
    + """
    import sys
    sys.everything = [stream, event, context, buffer, host, array, part]
    """,
    "callbacks queued behind one that runs": """
    import acl, time
    stream = acl.Stream()
    for _ in range(100):
        stream.launch(time.sleep, 0.01)
    """,
    "a callback that runs for long": """
    import acl, time
    stream = acl.Stream()
    stream.launch(time.sleep, 1000)
    stream.launch(print, "must not be called")
    time.sleep(0.1)
    """,
    "a callback that never drops the GIL for long": """
    import acl, time
    def spin():
        while True:
            pass
    stream = acl.Stream()
    stream.launch(spin)
    time.sleep(0.1)
    """,
    "callbacks on both devices at once": """
    import acl, time
    streams = [acl.Stream(0), acl.Stream(1)]
    for number, stream in enumerate(streams):
        with acl.Device(number):
            for _ in range(50):
                stream.launch(time.sleep, 0.005)
    """,
    "a callback that imports and allocates": """
    import acl
    def busy():
        import json, decimal
        while True:
            json.dumps([decimal.Decimal(1)] * 10, default=str)
    stream = acl.Stream()
    stream.launch(busy)
    import time
    time.sleep(0.1)
    """,
    "a daemon thread inside a synchronize": """
    import acl, threading, time
    stream = acl.Stream()
    stream.launch(time.sleep, 1000)
    threading.Thread(target=stream.synchronize, daemon=True).start()
    time.sleep(0.1)
    """,
    "a daemon thread that allocates": """
    import acl, threading, time
    acl.Device(0).use()
    def body():
        while True:
            with acl.Buffer(4096), acl.Stream(): pass
    threading.Thread(target=body, daemon=True).start()
    time.sleep(0.1)
    """,
    "daemon threads that drop a pool's buffers": """
    import atexit, threading, time
    atexit.register(time.sleep, 0.2)        # comes after what acl registers
    import acl
    pool, stream = acl.Pool(0, "32MiB"), acl.Stream()
    def body():
        while True:
            buffer = pool.alloc("3MiB", stream)
            del buffer
    for _ in range(2):
        threading.Thread(target=body, daemon=True).start()
    time.sleep(0.1)
    """,
    "sys.exit in the middle": ALIVE
    + """
    import sys
    stream.default().launch(len, ())
    sys.exit(0)
    """,
    "objects closed by atexit": ALIVE
    + """
    import atexit
    for thing in (stream, event, buffer):
        atexit.register(thing.close)
    """,
    "objects closed by atexit after our own exit": """
    import atexit
    later = []
    atexit.register(lambda: [thing.close() for thing in later])
    import acl
    later += [acl.Stream(), acl.Event(), acl.Buffer(100), acl.HostBuffer(100), acl.Context(0)]
    """,
    "nothing but the import": "import acl",
}


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize("older", [False, True], ids=["", "older CANN"])
@pytest.mark.parametrize("case", CASES)
def test_interpreter_exit_prints_nothing(case: str, older: bool) -> None:
    done = run_python(CASES[case], timeout=300, ACL_WITHOUT="newer" if older else "")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.subprocess_heavy
def test_interpreter_exit_prints_nothing_in_many_runs() -> None:
    # Because of the random sleep, the callbacks' thread is at different points when the interpreter exits.
    code = """
        import acl, time, os
        streams = [acl.Stream() for _ in range(3)]
        for stream in streams:
            for _ in range(200):
                stream.launch(lambda: [n * n for n in range(50)])
        time.sleep(int.from_bytes(os.urandom(1), "big") / 50_000)
    """
    for _ in range(15):
        done = run_python(code, timeout=300)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_callbacks_after_the_end_of_the_interpreter_are_harmless(tmp_path: Path) -> None:
    # A library's exit handler keeps the process alive after Python has ended, while callbacks are still queued.
    source, library = tmp_path / "late.c", tmp_path / "late.so"
    source.write_text("""
        #include <stdlib.h>
        #include <unistd.h>
        static void wait_long(void) { usleep(300000); }
        __attribute__((constructor)) static void start(void) { atexit(wait_long); }
    """)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = run_python(f"""
        import acl, ctypes, time
        ctypes.CDLL({str(library)!r})
        stream = acl.Stream()
        for _ in range(100):
            stream.launch(time.sleep, 0.005)
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_callback_that_is_due_after_the_end_of_the_interpreter_is_not_run(tmp_path: Path) -> None:
    # The callback is queued behind a C function that waits for an exit handler, which runs after Python has ended.
    source, library = tmp_path / "gone.c", tmp_path / "gone.so"
    source.write_text("""
        #include <stdatomic.h>
        #include <stdlib.h>
        #include <unistd.h>
        static atomic_int gone, passed;
        void gate(void *unused) { (void)unused; while (!gone) usleep(1000); }
        void behind(void *unused) { (void)unused; passed = 1; }
        static void open_gate(void)
        {
            gone = 1;
            for (int i = 0; i < 30000 && !passed; i++) usleep(1000);
            if (!passed) _exit(3);
        }
        __attribute__((constructor)) static void start(void) { atexit(open_gate); }
    """)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    done = run_python(f"""
        import acl, acl.sim, ctypes
        stream = acl.Stream()
        functions = ctypes.CDLL({str(library)!r})
        runtime = ctypes.CDLL(str(acl.sim.library_dir()) + "/libascendcl.so")
        def launch(function):
            assert runtime.aclrtLaunchHostFunc(ctypes.c_void_p(stream.handle), function, None) == 0
        launch(functions.gate)
        stream.launch(print, "must not be called")
        launch(functions.behind)
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_exit_does_not_wait_for_a_callback_that_the_runtime_joins(tmp_path: Path) -> None:
    # The real runtime joins its threads at exit; here one of them is in a Python callback that never returns.
    source, library = tmp_path / "join.c", tmp_path / "libascendcl.so"
    source.write_text("""
        #include <pthread.h>
        #include <stdlib.h>
        typedef struct { void (*call)(void *); void *argument; } Job;
        static pthread_t thread;
        static int started;
        static void *run(void *job) { ((Job *)job)->call(((Job *)job)->argument); return NULL; }
        int aclrtLaunchHostFunc(void *stream, void (*call)(void *), void *argument)
        {
            Job *job = malloc(sizeof *job);
            (void)stream;
            job->call = call;
            job->argument = argument;
            started = 1;
            return pthread_create(&thread, NULL, run, job);
        }
        __attribute__((destructor)) static void join(void) { if (started) pthread_join(thread, NULL); }
    """)
    folder = acl.sim.library_dir()
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, f"-L{folder}",
                    f"-Wl,--no-as-needed,-rpath,{folder}", "-l:libascendcl.so"], check=True)
    done = run_python("""
        import acl, sys, threading
        inside = threading.Event()
        stream = acl.Stream()
        stream.launch(lambda: (inside.set(), threading.Event().wait()))
        assert inside.wait(60)
        print("the last line", end="")
        sys.exit(7)
    """, ACL_LIBRARY=str(library), timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("the last line", "", 7)


def test_runtime_objects_are_not_released_when_the_interpreter_ends(tmp_path: Path) -> None:
    trace = tmp_path / "calls"
    done = run_python(ALIVE, ACL_SIM_TRACE=str(trace))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    calls = [line.split()[2] for line in trace.read_text().splitlines()]
    assert {"aclrtCreateStreamWithConfig", "aclrtMallocHost"} <= set(calls)
    released = [call for call in calls if call.startswith(("aclrtDestroy", "aclrtFree", "aclrtReset"))]
    assert released == []


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_program_may_reset_its_device_as_its_last_call(tmp_path: Path, closed: bool, force: bool) -> None:
    trace = tmp_path / "calls"
    close = "del array; [one.close() for one in (part, kept, buffer, host, event, stream, context, pool)]"
    done = run_python(f"""{ALIVE}
    acl.Device(0).use()
    pool = acl.Pool(0); kept = pool.alloc(1 << 20, stream)
    {close if closed else ""}
    acl.Device(0).reset(force={force})
    print("the last line", end="")
    """, ACL_SIM_TRACE=str(trace))
    assert (done.stdout, done.stderr, done.returncode) == ("the last line", "", 0)
    assert "aclrtResetDevice" in trace.read_text()


def test_an_uncaught_error_keeps_its_exit_code() -> None:
    done = run_python(
        "import acl; stream = acl.Stream(); stream.launch(len, ()); raise KeyError('mine')"
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "KeyError: 'mine'" in done.stderr
