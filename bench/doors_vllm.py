"""Compare vLLM-Ascend's sleep mode with this package's: `python bench/doors_vllm.py [--wheel FILE] [--json FILE]`.

Each row is measured in a new process on the simulator, with the real torch_npu and the real `camem.py` of vllm-ascend
0.23.0 (its wheel is downloaded from PyPI, or is FILE).  The process allocates layers of weights under one tag, and
480 MiB of keys and values under another.  In each round it sleeps with the weights offloaded, and wakes.  The columns:

live      the bytes that the tensors requested
awake     the simulator's physical accounting while awake
asleep    the simulator's physical accounting while asleep
time      CPU time of the process for one sleep and wake, copies included: the least of the rounds
calls     the driver calls of one sleep and wake

vLLM-Ascend's own module needs a dozen of CANN's libraries and torch 2.10.  Empty libraries replace CANN's, and one
renamed function of torch is forwarded by a library that gcc builds.  Needs torch and torch_npu 2.13.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from doors import CALLS_OF, TIME, Row, child, main, mib

__all__ = ["DOORS", "measure"]

#: For each allocator: the code that is run before camem.py is imported.
DOORS = {
    "vLLM-Ascend's own module": "vendors()",
    "acl.vllm.install()": "acl.vllm.install()",
    "acl.vllm.install(pool)": "acl.vllm.install(acl.Pool(0))",
    "acl.vllm.install(pool), pages of 8 MiB": "acl.vllm.install(acl.Pool(0, granule='8MiB'))",
}

CODE = """
import ctypes, glob, json, logging, os, subprocess, sys, time, types
import aclpool as acl
from acl.adapters._preload import preload
preload()
import acl.vllm
import torch, torch_npu
FOLDER = {folder!r}

def compiled(name, source, *flags):
    made = os.path.join(FOLDER, name)
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", made, *flags], input=source.encode(), check=True)
    ctypes.CDLL(made, ctypes.RTLD_GLOBAL)

def vendors():
    (module,) = glob.glob(FOLDER + "/vllm_ascend/vllm_ascend_C*.so")
    needed = subprocess.run(["readelf", "-d", module], capture_output=True, text=True, check=True).stdout
    for line in needed.splitlines():
        name = line.rpartition("[")[2].rstrip("]")
        if "(NEEDED)" in line and not name.startswith(("libtorch", "libc10", "libstdc", "libm.", "libgcc", "libc.")):
            try:
                ctypes.CDLL(name)
            except OSError:
                compiled(name, "", "-Wl,-soname," + name)
    torch_libraries = os.path.join(os.path.dirname(torch.__file__), "lib")
    define = "_ZNR5torch7Library4_defEON3c1014FunctionSchemaEPNS1_12OperatorNameERKSt6vectorI"
    old, new = (define + tag + "SaIS8_EENS_17_RegisterOrVerifyE" for tag in ("N2at3TagE", "NS_10headeronly3TagE"))
    source = '__asm__(".globl %s\\\\n.type %s,@function\\\\n%s: jmp %s@PLT\\\\n");' % (old, old, old, new)
    compiled("libforward.so", source, "-L" + torch_libraries, "-Wl,--no-as-needed,--allow-shlib-undefined",
             "-ltorch_cpu")
    sys.setdlopenflags(os.RTLD_LAZY)            # what CANN's libraries would have is not called here

vllm = types.ModuleType("vllm")
vllm.logger = types.ModuleType("vllm.logger")
vllm.logger.logger = logging.getLogger("vllm")
sys.modules.update({{"vllm": vllm, "vllm.logger": vllm.logger}})
package = types.ModuleType("vllm_ascend")
package.__path__ = [FOLDER + "/vllm_ascend"]
sys.modules["vllm_ascend"] = package
torch.npu.set_device(0)
torch.empty(1, device="npu")
torch.npu.empty_cache()
{start}
from vllm_ascend.device_allocator import camem
allocator = camem.CaMemAllocator.get_instance()
base = sim.physical_bytes()
with allocator.use_memory_pool("weights"):
    weights = [torch.empty(size << 10, dtype=torch.uint8, device="npu")
               for layer in range(8) for size in (3000, 3000, 1000, 1000, 7, 7)]
with allocator.use_memory_pool("kv_cache"):
    cache = [torch.empty(30 << 20, dtype=torch.uint8, device="npu") for _ in range(16)]
live = sum(one.numel() for one in weights + cache)
awake = sim.physical_bytes() - base
seconds = []
for turn in range({rounds}):
    before, started = driver_calls(), time.process_time()
    allocator.sleep(("weights",))
    spent, asleep = time.process_time() - started, sim.physical_bytes() - base
    started = time.process_time()
    allocator.wake_up()
    seconds.append(time.process_time() - started + spent)
    calls = driver_calls() - before
print("RESULT", json.dumps(dict(live=live, reserved=awake, asleep=asleep, seconds=min(seconds),
                                calls=calls, module=camem.lib_name)), flush=True)
os._exit(0)                                     # vLLM-Ascend's own module dies of its borrowed references
"""

COLUMNS = [
    ("live MiB", mib("live")), ("awake MiB", mib("reserved")), ("asleep MiB", mib("asleep")),
    TIME, ("driver calls", lambda row: str(row["calls"])),
]


def camem_from(wheel: str | None, folder: Path) -> None:
    """Unpack vllm-ascend's allocator into a folder."""
    if wheel is None:
        line = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
        line += ["--platform", "manylinux_2_34_x86_64", "--python-version", "311", "vllm-ascend==0.23.0"]
        subprocess.run(line, check=True, timeout=600)
        (wheel,) = map(str, folder.glob("*.whl"))
    with zipfile.ZipFile(wheel) as opened:
        for name in opened.namelist():
            if name.startswith(("vllm_ascend/device_allocator/", "vllm_ascend/vllm_ascend_C")):
                opened.extract(name, folder)


def measure(options: argparse.Namespace) -> list[Row]:
    rows = []
    for door, start in DOORS.items():
        with tempfile.TemporaryDirectory() as folder:
            camem_from(options.wheel, Path(folder))
            code = CALLS_OF + CODE.format(
                folder=folder, start=start, rounds=options.rounds)
            rows.append({"work": "sleep and wake", "allocator": door, **child(door, code)})
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wheel", help="vllm-ascend 0.23.0's, instead of the one from PyPI")


if __name__ == "__main__":
    sys.exit(main(__doc__, measure, COLUMNS, arguments))
