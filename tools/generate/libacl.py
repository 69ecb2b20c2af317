"""Write the Cython layer over the C API: one late-bound function pointer for each function.

Writes `acl/bind/generated/_libacl.pxd` (types from the C headers, functions as pointers that others `cimport`)
and the end of `_libacl.pyx` there, which gives those pointers to the loader. Beside them it writes the
table of pointers, the stub to which each one points before the library is opened, and the names of
the error codes.
"""

from __future__ import annotations

import re
from textwrap import wrap

from . import api
from .api import Row
from .headers import split

MARK_PYTHON = f"# {api.MARK}\n"
MARK_C = f"/* {api.MARK} */\n"
MISSING = "ACL_ERROR_RT_FEATURE_NOT_SUPPORT"
# What a function of these types returns if the library lacks it. Functions of other types return 0 or NULL.
ABSENT = {
    "aclDataType": "ACL_DT_UNDEFINED",
    "aclFormat": "ACL_FORMAT_UNDEFINED",
    "acltdtTensorType": "ACL_TENSOR_DATA_UNDEFINED",
}

PXD_HEAD = (
    MARK_PYTHON
    + '''"""Every type, constant and function of the ACL C API, for `cimport`.

Types and constants come from the headers under `acl/include`; a C compiler that disagrees with the
table behind them stops the build.  Each function is a pointer that starts at a stub: the stub opens
the library at the first call, binds what the library has, and answers for what it lacks with
ACL_ERROR_RT_FEATURE_NOT_SUPPORT (207000), or NULL or 0 from a function that returns a value; then
`late_missing()` names the function.  Nothing here needs the GIL, and nothing links against CANN.
"""

from libc.stddef cimport size_t
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
'''
)


def wrapped(text: str, indent: str = "") -> str:
    """Break a long line into several, at places inside brackets."""
    glued = text.replace(") noexcept nogil", ")~noexcept~nogil")
    lines = wrap(
        glued, 98, initial_indent=indent, subsequent_indent=indent + "    ", break_long_words=False
    )
    return "\n".join(lines).replace("~", " ")


def cython_type(c_type: str, name: str) -> str:
    """Return a parameter or field as Cython spells it."""
    c_type = re.sub(r"\b(struct|union|enum) (?=\w)", "", c_type)
    c_type = re.sub(r"\bbool\b", "bint", c_type)
    if "(*" in c_type:
        return api.declare(re.sub(r"\*\s*const\)", "*)", c_type), name) + " noexcept nogil"
    base, bracket, rest = c_type.partition("[")
    if not bracket:
        return api.declare(c_type, name)
    outer, _, inner = rest.partition("]")
    if outer or not inner:
        return api.declare(base.rstrip() + " *", name)
    return f"{base.rstrip()} (*{name}){inner}"


def cython_parameters(row: Row) -> str:
    spelled = [cython_type(p["type"], p["name"]) for p in row["params"]]
    return ", ".join([*spelled, "..."] if row.get("variadic") else spelled)


def pointer(row: Row) -> str:
    """Return a pointer such as `aclError (*aclrtFree)(void *devPtr) noexcept nogil`."""
    head = api.declare(row["returns"], f"(*{row['name']})")
    return f"{head}({cython_parameters(row)}) noexcept nogil"


def members(fields: list[Row], indent: str, owner: str) -> tuple[list[str], list[str]]:
    """Return the lines of a struct, and the unions that must be declared before it."""
    lines: list[str] = []
    before: list[str] = []
    for f in fields:
        if "fields" not in f:
            size = "".join(f"[{n}]" for n in f.get("array", []))
            lines.append(f"{indent}{cython_type(f['type'], f['name'])}{size}")
            continue
        inner, nested = members(f["fields"], indent, owner)
        before += nested
        if not f["name"]:
            lines += inner
            continue
        name = f"{owner}_{f['name']}"
        before += [f"    cdef {f['type']} {name}:", *inner]
        lines.append(f"{indent}{name} {f['name']}")
    return lines, before


def record(row: Row) -> list[str]:
    lines, before = members(row["fields"], " " * 8, row["name"])
    return [*before, f"    ctypedef {row['kind']} {row['name']}:", *lines]


def enum(row: Row) -> list[str]:
    return [f"    ctypedef enum {row['name']}:", *[f"        {m['name']}" for m in row["members"]]]


def opaque(row: Row) -> list[str]:
    if row["kind"] == "pointer":
        return [f"    ctypedef {api.declare(row['alias'], row['name'])}"]
    return [f"    ctypedef struct {row['name']}:", "        pass"]


def number(row: Row) -> str:
    """Return a constant; one that does not fit an int is written with its type."""
    if row.get("kind") == "string":
        return f"    const char *{row['name']}"
    if row["value"] > 0x7FFFFFFF:
        return f"    const uint64_t {row['name']}"
    return f"    const int {row['name']}"


def callback(row: Row) -> str:
    return wrapped(f"ctypedef {pointer(row)}", "    ")


def needs(row: Row) -> set[str]:
    """Return the types that a declaration uses."""
    if "fields" in row:
        return set().union(
            *(needs(f) if "fields" in f else api.words(f["type"]) for f in row["fields"])
        )
    if "params" in row:
        return api.words(row["returns"]).union(
            *(api.words(p["type"]) for p in row["params"]), set()
        )
    return api.words(row.get("alias", ""))


def declarations(header: str, part: Row) -> str:
    """Return the types and constants of one header."""
    lines = [f'cdef extern from "acl/{header}" nogil:']
    lines += [f"    ctypedef {t['alias']} {t['name']}" for t in part["typedefs"]]
    plain = [d for d in part["defines"] if not d.get("function_like")]
    lines += [number(c) for c in [*plain, *part["errors"], *part["constants"]]]
    for row in part["opaque"]:
        lines += opaque(row)
    for row in part["enums"]:
        lines += enum(row)
    for row in api.in_order(part["structs"], needs):
        lines += record(row)
    lines += [callback(c) for c in part["callbacks"]]
    return "\n".join(lines) + "\n" if len(lines) > 1 else ""


def header_order(parts: dict[str, Row]) -> list[str]:
    """Return the headers, each one after those whose types it uses."""
    kinds = ["enums", "structs", "opaque", "callbacks", "typedefs"]
    home = {r["name"]: h for h, part in parts.items() for k in kinds for r in part[k]}
    rows = [
        {
            "name": h,
            "needs": {home[w] for k in kinds for r in part[k] for w in needs(r) if w in home},
        }
        for h, part in parts.items()
    ]
    return [row["name"] for row in api.in_order(rows, lambda row: row["needs"])]


def pxd(table: Row) -> str:
    parts = split(table)
    types = [declarations(h, parts[h]) for h in header_order(parts)]
    functions = [wrapped("cdef " + pointer(f)) for f in table["functions"]]
    loader = (api.ROOT / "acl/bind/loader.pxd.in").read_text()
    return "\n".join([PXD_HEAD, *[t for t in types if t], loader, *functions]) + "\n"


def pyx(table: Row) -> str:
    head = (api.ROOT / "acl/bind/libacl.pyx.in").read_text()
    slots = [f"    slots[{i}] = <void **> &{f['name']}" for i, f in enumerate(table["functions"])]
    start = "\n\ncdef void slots_fill(void ***slots) noexcept nogil:\n"
    return MARK_PYTHON + head + start + "\n".join(slots) + "\n\n\nstart()\n"


def table_h(table: Row) -> str:
    names = [f"    LATE_{f['name']}," for f in table["functions"]]
    fields = [
        wrapped(api.declare(f["returns"], f"(*{f['name']})") + f"({api.parameters(f)});", "    ")
        for f in table["functions"]
    ]
    headers = dict.fromkeys(f["header"] for f in table["functions"])
    return "\n".join(
        [
            MARK_C + "#ifndef LATE_TABLE_H\n#define LATE_TABLE_H\n",
            *[f'#include "acl/{h}"' for h in headers],
            "\n/* The number of each function: its place in the table. */",
            "enum {",
            *names,
            "    LATE_COUNT\n};\n",
            "typedef struct LateTable {",
            *fields,
            "} LateTable;\n",
            '_Static_assert(sizeof(LateTable) == LATE_COUNT * sizeof(void *), "one pointer each");\n',
            "typedef struct LateCode {\n    int value;\n    const char *name;\n} LateCode;\n",
            "extern LateTable late_table;",
            "extern const char *const late_names[LATE_COUNT];",
            "extern const bool late_newer[LATE_COUNT]; /* not in CANN 8.1.RC1 */",
            f"#define LATE_CODES {len(table['errors'])}",
            "extern const LateCode late_codes[LATE_CODES]; /* by value */\n",
            "#endif\n",
        ]
    )


def stub(row: Row) -> str:
    """Return the stub, to which a pointer points before the library is opened."""
    name, returns = row["name"], row["returns"]
    head = wrapped("static " + api.prototype(row, "stub_")) + "\n{\n"
    if row.get("variadic"):
        arguments = ", ".join(p["name"] for p in row["params"][:-1])
        return head + (
            "    char text[1024];\n    va_list rest;\n    va_start(rest, fmt);\n"
            "    (void)vsnprintf(text, sizeof text, fmt, rest);\n    va_end(rest);\n"
            f"    if (late_find(LATE_{name})) {{\n"
            f'        late_table.{name}({arguments}, "%s", text);\n    }}\n}}\n'
        )
    call = f"late_table.{name}({', '.join(p['name'] for p in row['params'])})"
    if returns == "void":
        return head + f"    if (late_find(LATE_{name})) {{\n        {call};\n    }}\n}}\n"
    absent = (
        MISSING if returns == "aclError" else ABSENT.get(returns, "NULL" if "*" in returns else "0")
    )
    return (
        head
        + f"    if (!late_find(LATE_{name})) {{\n        return {absent};\n    }}\n    return {call};\n}}\n"
    )


def stubs_c(table: Row) -> str:
    functions = table["functions"]
    by_value = sorted(
        table["errors"], key=lambda r: (r["value"], r["name"] != "ACL_SUCCESS", r["name"])
    )
    return "\n".join(
        [
            MARK_C
            + '#include "bind/loader.h"\n#include "table.h"\n\n#include <stdarg.h>\n#include <stdio.h>\n',
            *[stub(f) for f in functions],
            "LateTable late_table = {",
            *[f"    .{f['name']} = stub_{f['name']}," for f in functions],
            "};\n",
            "const char *const late_names[LATE_COUNT] = {",
            *[f'    "{f["name"]}",' for f in functions],
            "};\n",
            "const bool late_newer[LATE_COUNT] = {",
            *[f"    [LATE_{f['name']}] = true," for f in functions if f["since"] == "newer"],
            "};\n",
            "const LateCode late_codes[LATE_CODES] = {",
            *[f'    {{{r["value"]}, "{r["name"]}"}},' for r in by_value],
            "};\n",
        ]
    )


def outputs(table: Row) -> dict[str, str]:
    """Return the Cython layer and its table of pointers."""
    return {
        "acl/bind/generated/_libacl.pxd": pxd(table),
        "acl/bind/generated/_libacl.pyx": pyx(table),
        "acl/bind/generated/table.h": table_h(table),
        "acl/bind/generated/stubs.c": stubs_c(table),
    }
