"""Only the arena's lock, in C: `tests/c/core_lock.c`, with and without the bias.

`python tests/c/run_tsan.py` runs the same program under ThreadSanitizer.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.child import run_python

sys.path.insert(0, str(Path(__file__).parents[1] / "c"))
import programs


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lock")
    libraries, headers = programs.simulator(folder, programs.mode())
    return programs.compile_program(programs.HERE / "core_lock.c", folder, libraries, headers, programs.mode())


SECOND_FILE = """
    #include "lock.h"
    void *self_of_second_file(void) { return lock_self(); }
"""
FIRST_FILE = """
    #include "lock.h"
    #include <pthread.h>
    #include <stdio.h>
    void *self_of_second_file(void);
    static void *other(void *unused) { (void)unused; return lock_self(); }
    int main(void)
    {
        pthread_t thread;
        void *found = NULL;
        pthread_create(&thread, NULL, other, NULL);
        pthread_join(thread, &found);
        printf("%d %d\\n", lock_self() == self_of_second_file(), lock_self() == found);
    }
"""


def test_thread_has_one_identity_in_all_files(tmp_path: Path) -> None:
    """If a thread had two identities, it would count as two owners of a lock.

    The test uses the compiler that CC names, because compilers have different built-in functions for the identity.
    """
    files = []
    for name, text in {"first.c": FIRST_FILE, "second.c": SECOND_FILE}.items():
        files.append(tmp_path / name)
        files[-1].write_text(text)
    compiler = shlex.split(os.environ.get("CC") or "gcc")
    core = Path(__file__).parents[2] / "acl/core"
    subprocess.run([*compiler, "-O2", "-pthread", f"-I{core}", *files, "-o", tmp_path / "program"], check=True)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1 0\n"


@pytest.mark.parametrize("bias", ["0", "1"])
def test_critical_sections_exclude_each_other_while_lock_owners_change(program: Path, bias: str) -> None:
    environment = {**os.environ, **programs.environment(programs.mode()), "ACL_POOL_BIAS": bias}
    done = subprocess.run([str(program)], capture_output=True, text=True, env=environment, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_seccomp_filter_installed_late_is_named_when_the_process_ends() -> None:
    """If a seccomp filter refuses membarrier after a thread has become the owner of an arena, the process aborts.

    Its message names the system call and the variable that switches the bias off.
    """
    done = run_python("""
        import ctypes, platform, struct, sys, threading
        import acl

        stream, pool = acl.Stream(0), acl.Pool(device=0)

        def use() -> None:
            for _ in range(5000):
                pool.alloc(1000, stream=stream).close()

        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

        use()
        number = {"x86_64": 324, "aarch64": 283}[platform.machine()]
        libc = ctypes.CDLL(None)
        if libc.syscall(number, 0, 0, 0) & 8 == 0:
            sys.exit("no membarrier")
        steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
        program = Program(len(steps), ctypes.addressof(code))
        assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
        other = threading.Thread(target=use)
        other.start()
        other.join()
        print("the other thread had its turn")
    """)
    if "no membarrier" in done.stderr:
        pytest.skip("this kernel has no membarrier, so no thread owns an arena")
    assert done.returncode == -signal.SIGABRT
    assert "the system call membarrier" in done.stderr and "ACL_POOL_BIAS=0" in done.stderr
