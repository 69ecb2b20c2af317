"""Write the C headers under acl/include/acl, one for each of CANN's, with the same names and types.

A program written against CANN's headers compiles against these without CANN.  Layouts are asserted
in the headers themselves, so a compiler that disagrees with the table stops the build.
"""

from __future__ import annotations

from textwrap import wrap

from . import api
from .api import Row

CODES = ["error_codes/rt_error_codes.h", "error_codes/ge_error_codes.h"]
# The headers that a header includes besides those that its declarations need.
ALSO = {
    "acl_base_rt.h": CODES,
    "acl_base.h": ["acl_base_rt.h", "acl_base_mdl.h"],
    "acl_rt.h": ["acl_base_rt.h", "acl_rt_allocator.h"],
    "acl_op.h": ["acl_base.h", "acl_rt.h"],
    "acl_mdl.h": ["acl_base.h", "acl_rt.h"],
    "acl_op_compiler.h": ["acl_base.h", "acl_op.h"],
    "acl.h": ["acl_rt.h", "acl_rt_allocator.h", "acl_rt_memory_soma.h", "acl_op.h", "acl_mdl.h"],
}

SYSTEM = """#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
"""

VISIBILITY = """
#ifndef ACL_FUNC_VISIBILITY
#define ACL_FUNC_VISIBILITY __attribute__((visibility("default")))
#endif
"""

LAYOUT = """
#if defined(__cplusplus)
#define ACL_LAYOUT(condition) static_assert(condition, #condition)
#elif __STDC_VERSION__ >= 201112L
#define ACL_LAYOUT(condition) _Static_assert(condition, #condition)
#else
#define ACL_LAYOUT(condition) typedef char acl_layout_unchecked
#endif
"""

APP_LOG = """#define ACL_APP_LOG(level, fmt, ...) \\
    aclAppLog(level, __func__, __FILE__, __LINE__, fmt, ##__VA_ARGS__)
"""


def field(row: Row, indent: str) -> list[str]:
    """Return the lines of one struct field; an unnamed struct or union is written in full."""
    if "fields" not in row:
        size = "".join(f"[{n}]" for n in row.get("array", []))
        return [f"{indent}{api.declare(row['type'], row['name'])}{size};"]
    tag = f" {row['nested_tag']}" if row.get("nested_tag") else ""
    name = f" {row['name']}" if row["name"] else ""
    inner = [line for f in row["fields"] for line in field(f, indent + "    ")]
    return [f"{indent}{row['type']}{tag} {{", *inner, f"{indent}}}{name};"]


def record(row: Row) -> str:
    """Return a struct or union, and the assertions of its layout."""
    tag = row.get("tag", row["name"])
    name = row["name"]
    lines = [line for f in row["fields"] for line in field(f, "    ")]
    if row.get("cpp_constructor"):
        args = ", ".join(f"uint32_t {f['name']}_ = 1" for f in row["fields"])
        init = ", ".join(f"{f['name']}({f['name']}_)" for f in row["fields"])
        lines += ["#ifdef __cplusplus", f"    {tag}({args}) : {init} {{}}", "#endif"]
    spelled = f"{row['kind']} {tag}"
    checks = [f"ACL_LAYOUT(sizeof({spelled}) == {row['size']});"]
    checks += [
        f"ACL_LAYOUT(offsetof({spelled}, {f['name']}) == {f['offset']});"
        for f in row["fields"]
        if f["name"] and f["offset"]
    ]
    return "\n".join([f"typedef {spelled} {{", *lines, f"}} {name};", *checks]) + "\n"


def enum(row: Row) -> str:
    """Return an enum; its members keep the table's values."""
    tag = f" {row['tag']}" if "tag" in row else f" {row['name']}"
    members = [f"    {m['name']} = {m['value']}," for m in row["members"]]
    return "\n".join([f"typedef enum{tag} {{", *members, f"}} {row['name']};"]) + "\n"


def constant(row: Row) -> str:
    """Return an error code or plain constant: a macro if CANN has a macro."""
    if row.get("form") == "static const":
        return f"static const {row['type']} {row['name']} = {row['value']};"
    return define(row)


def define(row: Row) -> str:
    """Return a macro."""
    value = row["value"]
    if row["kind"] == "string":
        return f'#define {row["name"]} "{value}"'
    text = hex(value) + "ULL" if isinstance(value, int) and value > 0x7FFFFFFF else str(value)
    return f"#define {row['name']} {text}"


def wrapped(text: str) -> str:
    """Break a long prototype into several lines."""
    return "\n".join(wrap(text, 100, subsequent_indent="    ", break_long_words=False))


def opaque(row: Row) -> str:
    return f"typedef {api.declare(row['alias'], row['name'])};"


def callback(row: Row) -> str:
    text = api.declare(row["returns"], f"(*{row['name']})({api.parameters(row)})")
    return wrapped(f"typedef {text};")


def function(row: Row) -> str:
    return wrapped(f"ACL_FUNC_VISIBILITY {api.prototype(row)};")


def field_words(row: Row) -> set[str]:
    found: set[str] = set()
    for f in row["fields"]:
        found |= field_words(f) if "fields" in f else api.words(f["type"])
    return found


def used_words(part: Row) -> set[str]:
    """Return every type name that a header's declarations use."""
    found: set[str] = set()
    for s in part["structs"]:
        found |= field_words(s)
    for f in part["callbacks"] + part["functions"]:
        found |= api.words(f["returns"]).union(*(api.words(p["type"]) for p in f["params"]), set())
    return found


def split(table: Row) -> dict[str, Row]:
    """Return the table's rows by header."""
    kinds = ["enums", "structs", "opaque", "callbacks", "typedefs", "defines", "constants", "errors", "functions"]
    names = dict.fromkeys(table["meta"]["headers"] + CODES)
    return {h: {k: [r for r in table[k] if r["header"] == h] for k in kinds} for h in names}


def includes(header: str, part: Row, home: dict[str, str]) -> list[str]:
    needed = {home[w] for w in used_words(part) if w in home} | set(ALSO.get(header, []))
    needed.discard(header)
    return sorted(needed)


def one(header: str, part: Row, home: dict[str, str]) -> str:
    """Return the text of one header."""
    guard = "ACLPOOL_" + header.upper().replace("/", "_").replace(".", "_")
    out = [f"/* {header}: the names and types of CANN's header of that name.\n   {api.MARK} */"]
    out.append(f"#ifndef {guard}\n#define {guard}\n")
    out.append(SYSTEM)
    out += [f'#include "acl/{h}"' for h in includes(header, part, home)]
    if header == "acl_base_rt.h":
        out.append(VISIBILITY)
    if part["structs"]:
        out.append(LAYOUT)
    out.append('\n#ifdef __cplusplus\nextern "C" {\n#endif\n')
    out += [f"typedef {api.declare(t['alias'], t['name'])};" for t in part["typedefs"]]
    plain = [d for d in part["defines"] if not d.get("function_like")]
    out += [define(d) for d in plain]
    out += [constant(c) for c in part["errors"] + part["constants"]]
    out += ["", *[opaque(o) for o in part["opaque"]], ""]
    out += [enum(e) for e in part["enums"]]
    out += [record(s) for s in api.in_order(part["structs"], field_words)]
    out += [callback(c) for c in part["callbacks"]]
    out += ["", *[function(f) for f in part["functions"]]]
    if header == "acl_base_rt.h":
        out += ["", APP_LOG]
    out.append("\n#ifdef __cplusplus\n}\n#endif\n")
    if part["structs"]:
        out.append("#undef ACL_LAYOUT\n")
    out.append("#endif\n")
    return "\n".join(out)


def outputs(table: Row) -> dict[str, str]:
    """Return the files to write: path of each header below the project's root -> its text."""
    parts = split(table)
    kinds = ["enums", "structs", "opaque", "callbacks", "typedefs"]
    home = {r["name"]: h for h, part in parts.items() for k in kinds for r in part[k]}
    home |= {r["tag"]: h for h, part in parts.items() for k in kinds for r in part[k] if "tag" in r}
    return {f"acl/include/acl/{h}": one(h, part, home) for h, part in parts.items()}
