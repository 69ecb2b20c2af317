"""A `libascendcl.so` that records the arguments of each call; it is made from the table of the C API.

With it, tests check that each Python argument reaches the right C parameter, and that each result that C writes is
returned at the right place.  A function writes 1000 + the parameter's number to each parameter for a result, and
returns the status that the test chose.
"""

import ctypes
import json
import re
import subprocess
from pathlib import Path
from typing import Any

Row = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
API: Row = json.loads((ROOT / "tools/generate/acl_api.json").read_text())
MOST = 24
TEXT = 64

HEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
%s
typedef struct { uint64_t value, size, peek; char text[%d]; } Seen;
typedef struct { const char *name; int count, gil; Seen seen[%d]; } Call;
__attribute__((visibility("default"))) Call recorder_call;
__attribute__((visibility("default"))) int recorder_status;

static void begin(const char *name)
{
    int (*held)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
    memset(&recorder_call, 0, sizeof recorder_call);
    recorder_call.name = name;
    recorder_call.gil = held ? held() : -1;
}
static Seen *add(const void *value, size_t size)
{
    Seen *seen = &recorder_call.seen[recorder_call.count++];
    seen->size = size;
    memcpy(&seen->value, value, size < 8 ? size : 8);
    return seen;
}
/* What a pointer points to, read so that an address that is no address does no harm. */
static void pointer(const void *value)
{
    Seen *seen = add(&value, sizeof value);
    struct iovec here = {&seen->peek, 8}, there = {(void *)value, 8};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) < 0) seen->peek = 0;
}
static void string(const char *value)
{
    Seen *seen = add(&value, sizeof value);
    if (value) snprintf(seen->text, sizeof seen->text, "%%s", value);
}
static void give(void *place, size_t size, uint64_t number)
{
    if (place && recorder_status == 0) memcpy(place, &number, size < 8 ? size : 8);
}
"""


def bare(c_type: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\bconst\b", "", c_type)).replace(" *", "*").strip()


OPAQUE = {o["name"] for o in API["opaque"] if not o["alias"].endswith("*")} | {"aclrtStreamConfigHandle"}


def gives(p: Row) -> bool:
    """Return True if, by its type, a parameter is a pointer through which C writes a result."""
    base = bare(p["type"])
    if "(*" in base or "[" in base or base == "void*" or "*" not in base:
        return False
    if base.count("*") == 1 and base[:-1] in OPAQUE:
        return False
    return p["dir"] in ("out", "inout") or (p["name"] in {"modelRI", "notifyId", "flag", "modelId"} and "*" in base)


def record(p: Row, number: int) -> str:
    name, base = p["name"], bare(p["type"])
    if base == "char*" and p["dir"] == "in":
        return f"string({name});"
    if gives(p):
        size = "1" if base == "char*" else f"sizeof *{name}"
        value = 65 if base == "char*" else 1000 + number
        return f"pointer({name}); give((void *){name}, {size}, {value}u);"
    if "(*" in p["type"] or p["type"].endswith(("Func", "Callback", "CallBack", "Deallocator")):
        return f"pointer((const void *)(uintptr_t){name});"
    if "*" in base or "[" in base:
        return f"pointer({name});"
    return f"(void)add(&{name}, sizeof {name});"


def declare(c_type: str, name: str) -> str:
    if "(*" in c_type:
        return re.sub(r"\(\*(?:const)?\)", f"(*{name})", c_type, count=1)
    base, bracket, rest = c_type.partition("[")
    return f"{base} {name}{bracket}{rest}"


def function(f: Row) -> str:
    parameters = ", ".join(declare(p["type"], p["name"]) for p in f["params"]) or "void"
    lines = [record(p, i) for i, p in enumerate(f["params"])]
    returns = {"aclError": "return recorder_status;", "void": "", "const char *": 'return "named";',
               "float": "return 2.5f;"}.get(f["returns"], f"return ({f['returns']})0x5EED;")
    if f.get("variadic"):       # only aclAppLog, which is called with one string
        parameters += ", ..."
        lines += ["va_list rest; va_start(rest, fmt);", "string(va_arg(rest, const char *)); va_end(rest);"]
    return (f"{f['returns']} {f['name']}({parameters})\n{{\n    begin(\"{f['name']}\");\n    "
            + "\n    ".join([*lines, returns]) + "\n}\n")


def build(folder: Path) -> Path:
    """Compile the library into `folder`, and return its path."""
    headers = dict.fromkeys(f["header"] for f in API["functions"])
    source = HEAD % ("".join(f'#include "acl/{h}"\n' for h in headers), TEXT, MOST)
    source += "\n".join(function(f) for f in API["functions"])
    (folder / "recorder.c").write_text(source)
    library = folder / "libascendcl.so"
    subprocess.run(["gcc", "-std=gnu11", "-O0", "-w", "-shared", "-fPIC", f"-I{ROOT / 'acl/include'}",
                    str(folder / "recorder.c"), "-o", str(library)], check=True)
    return library


class Seen(ctypes.Structure):
    _fields_ = [("value", ctypes.c_uint64), ("size", ctypes.c_uint64), ("peek", ctypes.c_uint64),
                ("text", ctypes.c_char * TEXT)]


class Call(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("count", ctypes.c_int), ("gil", ctypes.c_int), ("seen", Seen * MOST)]


class Recorder:
    """The library, loaded in this process: the arguments of the last call, and the status that calls return."""

    def __init__(self, library: str) -> None:
        self.library = ctypes.CDLL(library)
        self.call = Call.in_dll(self.library, "recorder_call")
        self.status = ctypes.c_int.in_dll(self.library, "recorder_status")

    def last(self) -> Row:
        seen = [{"value": s.value, "size": s.size, "peek": s.peek, "text": s.text.decode()}
                for s in self.call.seen[:self.call.count]]
        return {"name": self.call.name.decode() if self.call.name else None, "gil": self.call.gil, "seen": seen}

    def forget(self) -> None:
        self.call.name = None
