"""Write the simulator's exported functions: one gate around each `sim_` function.

The sources under acl/sim define `sim_aclrtFree` and the like.  For each of them this module writes the exported
`aclrtFree`, which counts the call, checks whether an injected fault is due, and traces the call.  So a function is
exported if and only if the simulator implements it (but see `LINKED`).  A call that fails adds its name and its
arguments to the thread's message.  Functions that belong to `libacl_op_compiler.so` are exported by a separate
library, which links against libascendcl.so. Therefore the `sim_` functions and the gate that they use are visible
outside libascendcl.so.
"""

from __future__ import annotations

import functools
import re
from textwrap import wrap

from . import api
from .api import Row

DEFINITION = re.compile(r"^[A-Za-z_][\w \*]*?\bsim_((?:acl|Msprof|rt)\w+)\(", re.M)
# The header of the functions that CANN has in libacl_op_compiler.so.
COMPILER_HEADER = "acl_op_compiler.h"
# Functions that work in a forked child too, where all others are refused.
ALWAYS_ANSWERED = {"aclGetRecentErrMsg", "aclrtGetLastError", "aclrtPeekAtLastError"}


def implemented() -> set[str]:
    """Return the names of the API functions that the simulator's sources define."""
    sources = sorted((api.ROOT / "acl/sim").glob("*/*.c"))
    return {m for path in sources if path.parent.name != "generated" for m in DEFINITION.findall(path.read_text())}


SIGNED = {"int", "int8_t", "int16_t", "int32_t", "int64_t"}
UNSIGNED = {"size_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "aclFloat16", "bool"}


@functools.cache
def type_names(kind: str) -> frozenset[str]:
    """Return the names of all enums or structs of the table."""
    return frozenset(row["name"] for row in api.load()[kind])


# Macros that convert a value to the type that error_sign takes for its sort.
CASTS = """#define POINTER(value) ((const void *)(uintptr_t)(value))
#define SIGNED(value) ((int64_t)(value))
#define UNSIGNED(value) ((uint64_t)(value))
#define REAL(value) ((double)(value))
"""

# Parameters through which a call returns a handle or an address, so that the trace shows the value.
PUTS_HANDLE = {f"aclrt{name} *" for name in (
    "ArgsHandle", "BinHandle", "Context", "DrvMemHandle", "Event", "FuncHandle", "MemPool", "Notify", "Stream")}
PUTS_ADDRESS = {"devPtr", "hostPtr", "pDevice", "ptr", "virPtr"}


def argument(parameter: Row) -> tuple[str, str] | None:
    """Return a parameter as error_sign takes it: "name:sort" and the value; None if it is a struct passed by value."""
    bare, name = parameter["type"].replace("const", "").strip(), parameter["name"]
    if bare in ("float", "double"):
        return f"{name}:d", f"REAL({name})"
    if bare in SIGNED or bare in type_names("enums"):
        return f"{name}:i", f"SIGNED({name})"
    if bare in UNSIGNED:
        return f"{name}:u", f"UNSIGNED({name})"
    puts = (bare in PUTS_HANDLE and not name.endswith("s")) or (bare == "void **" and name in PUTS_ADDRESS)
    sort = "o" if puts else "p"
    return None if bare in type_names("structs") else (f"{name}:{sort}", f"POINTER({name})")


def sign(row: Row, status: str, indent: str) -> str:
    """Return the call that adds name and arguments to the message of a call that failed."""
    told = [made for made in map(argument, row["params"]) if made is not None]
    names = " ".join(name for name, _ in told)
    texts = wrap(names, 80) or [""]
    quoted = f"\n{indent}    ".join(f'"{text}{" " if text is not texts[-1] else ""}"' for text in texts)
    far = "acl_sim_" if row["header"] == COMPILER_HEADER else ""
    head = f'{indent}{far}error_sign("{row["name"]}", {status},\n{indent}    {quoted}'
    values = wrap(", ".join(value for _, value in told), 90, break_long_words=False, break_on_hyphens=False)
    return head + "".join(f",\n{indent}    {line.rstrip(',')}" for line in values) + ");\n"


def gate(row: Row) -> str:
    """Return the exported function around `sim_NAME`."""
    name, returns = row["name"], row["returns"]
    call = f"sim_{name}({', '.join(p['name'] for p in row['params'])})"
    head = f"{api.prototype(row)}\n{{\n"
    if name in ALWAYS_ANSWERED:
        return f"{head}    gate_count(FN_{name});\n    return {call};\n}}\n"
    far = "acl_sim_" if row["header"] == COMPILER_HEADER else ""
    enter, leave, tells = f"{far}gate_enter(FN_{name})", f"{far}gate_leave(FN_{name}, ", f"{far}gate_tells("
    if returns == "aclError":
        body = (
            f"    aclError gate_status = {enter};\n"
            f"    if (gate_status == ACL_SUCCESS) {{\n        gate_status = {call};\n    }}\n"
            f"    if ({tells}gate_status)) {{\n{sign(row, 'gate_status', ' ' * 8)}    }}\n"
            f"    return {leave}gate_status);\n"
        )
    elif returns == "void":
        body = (
            f"    if ({enter} == ACL_SUCCESS) {{\n        {call};\n    }}\n"
            f"{sign(row, 'ERROR_ANY', ' ' * 4)}"
            f"    (void){leave}ACL_SUCCESS);\n"
        )
    else:
        zero = "NULL" if "*" in returns or row.get("pointer") else "0"
        body = (
            f"    {api.declare(returns, 'gate_result')} = {zero};\n"
            f"    if ({enter} == ACL_SUCCESS) {{\n        gate_result = {call};\n    }}\n"
            f"    aclError gate_status = gate_result == {zero} ? ERROR_ANY : ACL_SUCCESS;\n"
            f"    if ({tells}gate_status)) {{\n{sign(row, 'gate_status', ' ' * 8)}    }}\n"
            f"    (void){leave}ACL_SUCCESS);\n    return gate_result;\n"
        )
    return head + body + "}\n"


# Functions that torch_npu, MindSpore's and ONNX Runtime's providers bind when they load.  They are exported even if
# the simulator does not implement them, and then refuse calls.  Functions that programs probe by dlsym are not here.
LINKED = """
aclCreateTensorDesc aclDestroyTensorDesc aclGetTensorDescDimV2 aclGetTensorDescFormat aclGetTensorDescNumDims
aclGetTensorDescType aclSetTensorDescName aclSetTensorFormat aclSetTensorPlaceMent aclSetTensorShape
aclopCompileAndExecute aclopCreateAttr aclopDestroyAttr aclopSetAttrBool aclopSetAttrDataType aclopSetAttrFloat
aclopSetAttrInt aclopSetAttrListBool aclopSetAttrListFloat aclopSetAttrListInt aclopSetAttrListListInt
aclopSetAttrString aclrtBinaryGetFunction aclrtBinaryLoadFromData aclrtCreateEventExWithFlag aclrtDestroyEvent
aclrtEventElapsedTime aclrtFreePhysical aclrtGetFunctionAddr aclrtMallocPhysical aclrtMapMem
aclrtMemExportToShareableHandle aclrtMemImportFromShareableHandle aclrtMemSetPidToShareableHandle
aclrtProcessReport aclrtRecordEvent aclrtReleaseMemAddress aclrtReserveMemAddress aclrtResetEvent
aclrtStreamWaitEvent aclrtSynchronizeEvent aclrtUnmapMem
""".split()


def refusal(row: Row) -> str:
    """Return the exported function of a name that the simulator does not implement: it refuses the call."""
    ignored = "".join(f"    (void){p['name']};\n" for p in row["params"])
    call = f'acl_sim_unsupported("{row["name"]}")'
    returns = row["returns"]
    if returns == "aclError":
        last = f"    return {call};\n"
    elif returns == "void":
        last = f"    (void){call};\n"
    else:
        zero = "NULL" if "*" in returns or row.get("pointer") else "0"
        last = f"    (void){call};\n    return {zero};\n"
    return f"{api.prototype(row)}\n{{\n{ignored}{last}}}\n"


def declaration(row: Row) -> str:
    """Return the prototype of `sim_NAME`."""
    shared = "SIM_SHARED " if row["header"] == COMPILER_HEADER else ""
    return f"{shared}{api.prototype(row, 'sim_')};"


def outputs(table: Row) -> dict[str, str]:
    """Return the text of each file: exports.h (prototypes and numbers), the names, and the gates of each library."""
    have = implemented()
    rows = [r for r in table["functions"] if r["name"] in have and not r.get("variadic")]
    refused = [r for r in table["functions"] if r["name"] in LINKED and r["name"] not in have]
    headers = sorted({r["header"] for r in rows + refused} | {"acl.h"})
    mark = f"/* {api.MARK} */\n"
    numbers = [f"    FN_{r['name']}," for r in rows]
    names = [f'    "{r["name"]}",' for r in rows]
    exports_h = "\n".join([
        mark, "#ifndef SIM_EXPORTS_H\n#define SIM_EXPORTS_H\n",
        '#include "base/core.h"', *[f'#include "acl/{h}"' for h in headers],
        "\n/* The number of each exported function: an index for counters and faults. */",
        "enum {", *numbers, "    FN_COUNT\n};\n",
        "extern const char *const function_names[FN_COUNT];\n",
        *[declaration(r) for r in rows], "\n#endif\n",
    ])
    top = mark + '#include "base/core.h"\n#include "generated/exports.h"\n\n' + CASTS + "\n"
    main = [r for r in rows if r["header"] != COMPILER_HEADER]
    compiler = [r for r in rows if r["header"] == COMPILER_HEADER]
    table_c = "const char *const function_names[FN_COUNT] = {\n" + "\n".join(names) + "\n};\n"
    return {
        "acl/sim/generated/exports.h": exports_h,
        "acl/sim/generated/function_names.c": mark + '#include "generated/exports.h"\n\n' + table_c,
        "acl/sim/generated/exports.c": top + "\n".join(
            [gate(r) for r in main] + [refusal(r) for r in refused if r["header"] != COMPILER_HEADER]),
        "acl/sim/generated/exports_op_compiler.c": top + "\n".join(
            [gate(r) for r in compiler] + [refusal(r) for r in refused if r["header"] == COMPILER_HEADER]),
    }
