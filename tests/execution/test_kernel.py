"""acl.Module and acl.Kernel: arguments in the layout of C, launches in order, clear errors."""

from __future__ import annotations

import ctypes
import shutil
import struct
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from support.binaries import compiled
from support.child import run_python

import acl

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")

SOURCE = """
struct Mixed { double *out; uint8_t a; uint32_t b; uint16_t c; double d; float e; };
ACL_SIM_KERNEL(mixed)
{
    const struct Mixed *p = args;
    double values[5] = {p->a, p->b, p->c, p->d, p->e};
    memcpy(p->out, values, sizeof values);
}
struct Counts { uint32_t *seen; };
ACL_SIM_KERNEL(mark) { ((const struct Counts *)args)->seen[block] += 1 + blocks; }
ACL_SIM_KERNEL(doubled) { ((const struct Counts *)args)->seen[0] *= 2; }
ACL_SIM_KERNEL(increased) { ((const struct Counts *)args)->seen[0] += 1; }
ACL_SIM_KERNEL(crash) { *(volatile int *)8 = 1; }
ACL_SIM_KERNEL(endless) { for (;;) usleep(1000); }
"""


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compiled(SOURCE, tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def module(binary: bytes) -> Iterator[acl.Module]:
    with acl.Module(binary) as loaded:
        yield loaded


@pytest.fixture
def words(stream: acl.Stream) -> Iterator[acl.Buffer]:
    """Make a buffer of 4 KiB of zeros on the device."""
    with acl.Buffer(4096, stream=stream) as made:
        acl.fill(made, 0)
        yield made


def test_kernel_arguments_with_types_are_laid_out_like_a_c_struct(module, words, stream):
    types = (ctypes.c_void_p, ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint16, ctypes.c_double, ctypes.c_float)
    module.kernel("mixed", types).launch(1, words, 200, 70000, 40000, 2.5, 0.25, stream=stream)
    np.testing.assert_array_equal(acl.to_numpy(words, "float64", (5,)), [200, 70000, 40000, 2.5, 0.25])


def test_kernel_arguments_from_ctypes_and_numpy_have_their_own_sizes(module, words, stream):
    module.kernel("mixed").launch(
        1, words, ctypes.c_uint8(7), np.uint32(8), ctypes.c_uint16(9), np.float64(10), np.float32(11), stream=stream)
    np.testing.assert_array_equal(acl.to_numpy(words, "float64", (5,)), [7, 8, 9, 10, 11])


def test_kernel_arguments_are_passed_one_by_one_if_the_runtime_lacks_the_array_call(sim, module, words, stream):
    with sim.fault("aclrtLaunchKernelWithHostArgs", code=207000):
        module.kernel("mixed").launch(
            1, words, np.uint8(7), np.uint32(8), np.uint16(9), np.float64(10), np.float32(11), stream=stream)
    np.testing.assert_array_equal(acl.to_numpy(words, "float64", (5,)), [7, 8, 9, 10, 11])
    assert sim.counters()["aclrtLaunchKernelWithConfig"] == 1


@pytest.mark.parametrize("blocks", [1, 3, 200])
def test_each_block_of_a_kernel_runs_once(module, words, stream, blocks):
    module.kernel("mark").launch(blocks, words, stream=stream)
    seen = acl.to_numpy(words, "uint32", (1024,))
    np.testing.assert_array_equal(seen, [1 + blocks] * blocks + [0] * (1024 - blocks))


def test_kernel_launches_run_in_the_order_of_their_stream(module, words, stream):
    doubled, increased = module.kernel("doubled"), module.kernel("increased")
    expected = 0
    for i in range(40):
        (doubled if i % 3 == 2 else increased).launch(1, words, stream=stream)
        expected = expected * 2 if i % 3 == 2 else expected + 1
    assert acl.to_numpy(words, "uint32", (1,))[0] == expected


def test_closing_a_buffer_waits_for_the_kernel_launch_that_uses_the_buffer(module, stream):
    gate = threading.Event()
    words = acl.Buffer(4096, stream=stream)
    acl.fill(words, 0)
    stream.launch(gate.wait, 20)
    module.kernel("mark").launch(1, words, stream=stream)
    assert not stream.query()
    threading.Timer(0.1, gate.set).start()
    words.close()
    assert gate.is_set(), "closing waits for the launch"


def test_kernel_can_take_its_arguments_from_device_memory(module, words, stream):
    with acl.Buffer(8, stream=stream) as arguments:
        acl.copy(arguments, struct.pack("Q", words.address))
        module.kernel("mark").launch_device(5, arguments, stream=stream)
        assert acl.to_numpy(words, "uint32", (6,)).tolist() == [6] * 5 + [0]
        arguments.close()
        with pytest.raises(ValueError, match="closed"):
            module.kernel("mark").launch_device(5, arguments, stream=stream)


def test_kernel_module_can_be_loaded_from_a_file(tmp_path, binary, words):
    path = tmp_path / "k.so"
    path.write_bytes(binary)
    with acl.Module(path) as loaded:
        assert repr(loaded.kernel("mark")) == "<Kernel mark>"
        loaded.kernel("mark").launch(1, words)
        acl.Stream.default().synchronize()
        assert acl.to_numpy(words, "uint32", (1,))[0] == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((5,), TypeError, "argument 0 must be a Buffer, an Array, or a ctypes or NumPy scalar, not int"),
        (("x",), TypeError, "argument 0 must be"),
    ],
)
def test_kernel_arguments_without_a_size_are_refused(module, stream, arguments, error, text):
    with pytest.raises(error, match=text):
        module.kernel("mark").launch(1, *arguments, stream=stream)


def test_kernel_arguments_are_checked_against_their_types(module, words, stream):
    kernel = module.kernel("mark", (ctypes.c_uint32,))
    with pytest.raises(TypeError, match="takes 1 arguments, got 2"):
        kernel.launch(1, 1, 2, stream=stream)
    with pytest.raises(TypeError, match="argument 0: c_uint does not take 'x'"):
        kernel.launch(1, "x", stream=stream)


@pytest.mark.parametrize("blocks", [0, -1, 2**32, 2**70])
def test_impossible_number_of_kernel_blocks_is_refused(module, words, stream, blocks):
    for launch in (module.kernel("mark").launch, module.kernel("mark").launch_device):
        with pytest.raises(ValueError, match=f"blocks must be from 1 to 4294967295, not {blocks}"):
            launch(blocks, words, stream=stream)


def test_kernel_launch_refuses_wrong_block_and_byte_counts(module, words, stream):
    kernel = module.kernel("mark")
    with pytest.raises(TypeError, match="blocks must be an int, not str"):
        kernel.launch("1", words, stream=stream)
    with pytest.raises(TypeError, match="nbytes must be an int, not float"):
        kernel.launch_device(1, words, 8.0, stream)
    with pytest.raises(ValueError, match=f"nbytes must be at most {words.size}, not {words.size + 1}"):
        kernel.launch_device(1, words, words.size + 1, stream)


def test_unknown_or_wrong_kernel_launch_options_are_refused_by_name(module, words, stream):
    kernel = module.kernel("mark")
    with pytest.raises(TypeError, match="no option 'speed'; there are schem_mode"):
        kernel.launch(1, words, stream=stream, speed=1)
    with pytest.raises(ValueError, match="timeout_s must be from 0 to 65535, not 65536"):
        kernel.launch(1, words, stream=stream, timeout_s=65536)
    kernel.launch(1, words, stream=stream, timeout_s=5, schem_mode=0)
    assert acl.to_numpy(words, "uint32", (1,))[0] == 2


def test_unknown_kernel_functions_and_files_are_refused(module, tmp_path):
    with pytest.raises(acl.AclError, match="aclrtBinaryGetFunction"):
        module.kernel("nothing")
    with pytest.raises(acl.AclError, match="aclrtBinaryLoadFromFile"):
        acl.Module(tmp_path / "none.so")
    with pytest.raises(acl.AclError, match="aclrtBinaryLoadFromData"):
        acl.Module(b"no binary at all")


def test_closed_kernel_module_refuses_use(module, words, stream):
    kernel = module.kernel("mark")
    module.close()
    module.close()
    assert module.closed
    with pytest.raises(ValueError, match="the Module is closed"):
        kernel.launch(1, words, stream=stream)
    with pytest.raises(ValueError, match="the Module is closed"):
        module.kernel("mark")


def test_close_of_a_kernel_module_waits_for_its_launches(module, words, stream):
    gate = threading.Event()
    stream.launch(gate.wait, 20)
    module.kernel("mark").launch(1, words, stream=stream)
    threading.Timer(0.1, gate.set).start()
    module.close()
    assert acl.to_numpy(words, "uint32", (1,))[0] == 2


def test_crash_of_a_kernel_is_raised_as_an_error_of_its_stream(module, words):
    with acl.Stream(0) as lane:
        module.kernel("crash").launch(1, words, stream=lane)
        with pytest.raises(acl.AclError):
            lane.synchronize()


def test_a_kernel_that_does_not_end_is_stopped(module, words):
    with acl.Stream(0) as lane:
        module.kernel("endless").launch(1, words, stream=lane, timeout_us=50_000)
        with pytest.raises(acl.AclError):
            lane.synchronize()


def test_a_dropped_stream_is_not_kept_by_the_module(no_leaks, module, words):
    for _ in range(5):
        module.kernel("mark").launch(3, words, stream=acl.Stream(0))
    acl.Device(0).synchronize()


def test_kernel_launch_leaves_no_handle_behind(no_leaks, binary):
    with acl.Stream(0) as lane, acl.Buffer(4096, stream=lane) as words, acl.Module(binary) as loaded:
        loaded.kernel("mark").launch(3, words, stream=lane)


def test_process_exit_with_an_open_kernel_module_prints_nothing(tmp_path, binary):
    path = tmp_path / "k.so"
    path.write_bytes(binary)
    done = run_python(f"""
        import acl, time
        stream, module = acl.Stream(0), acl.Module({str(path)!r})
        words = acl.Buffer(4096, stream=stream)
        stream.launch(time.sleep, 0.2)
        module.kernel("mark").launch(3, words, stream=stream)
        print("end")
    """)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "end", "")
