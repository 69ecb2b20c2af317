"""Write the layout of a struct as the text that acl/pyacl/_layout.pyx reads; its grammar is described there."""

from __future__ import annotations

from .api import Row

NUMBERS = {
    "char": "b", "int8_t": "b", "uint8_t": "B", "unsigned char": "B", "int16_t": "h", "uint16_t": "H",
    "int32_t": "i", "int": "i", "uint32_t": "I", "int64_t": "L", "uint64_t": "K", "size_t": "k",
    "float": "f", "aclError": "i",
}
# pyACL's keys, where they differ from the names of the C fields.
KEYS = {
    "aclrtUtilizationInfo": {
        "cubeUtilization": "cube_utilization", "vectorUtilization": "vector_utilization",
        "aicpuUtilization": "aicpu_utilization", "memoryUtilization": "memory_utilization",
        "utilizationExtend": "utilization_extend",
    },
    "aclCANNPackageVersion": {
        "majorVersion": "major_version", "minorVersion": "minor_version",
        "releaseVersion": "release_version", "patchVersion": "patch_version",
    },
    "aclrtPtrAttributes": {"pageSize": "page_size"},
    "aclrtStreamAttrValue": {"reserve": "reserved"},
}
# Arrays, and the field that has the number of elements in use.
USED = {"dims": "dimCount", "range": "rangeCount", "batch": "batchCount", "hw": "hwCount", "outDims": "shapeCount"}
WHOLE = {("aclrtUuid", "bytes")}            # char arrays that hold numbers
BYTES = {("aclrtIpcEventHandle", "reserved")}   # char arrays that hold bytes


def find(table: Row, name: str) -> Row | None:
    name = name.removeprefix("struct ").removeprefix("union ")
    return next((s for s in table["structs"] if name in (s["name"], s.get("tag"))), None)


def number(table: Row, c_type: str) -> str:
    """Return the letter of a field that is not a struct."""
    if c_type.endswith("*"):
        return "K"
    if c_type in NUMBERS:
        return NUMBERS[c_type]
    if any(e["name"] == c_type for e in table["enums"]):
        return "i"
    handle = next((o for o in table["opaque"] if o["name"] == c_type), None)
    assert handle and handle["alias"].endswith("*"), c_type
    return "K"


def field(table: Row, owner: str, row: Row) -> str:
    """Return the text of one field."""
    key = KEYS.get(owner, {}).get(row["name"], row["name"])
    head = f"{key}@{row['offset']}"
    if "fields" in row:
        return f"{head}{{{fields(table, owner, row['fields'])}}}"
    counts = [n for n in row.get("array", []) if n]
    if "array" in row and not counts:
        return ""           # a flexible array member has no size
    inner = find(table, row["type"])
    if row["type"] == "char" and counts:
        if (owner, row["name"]) in WHOLE:
            return f"{head}[{counts[0]}]b"
        return f"{head}[{counts[0]}]{'c' if (owner, row['name']) in BYTES else 's'}"
    kind = f"{{{fields(table, inner['name'], inner['fields'])}}}" if inner else number(table, row["type"])
    size = inner["size"] if inner else {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "f": 4}.get(kind, 8)
    used = USED.get(row["name"], "") if owner.startswith(("aclmdl", "aclAipp")) else ""
    for level, count in enumerate(counts):
        stride = size
        for n in counts[level + 1:]:
            stride *= n
        plain = level == len(counts) - 1 and not inner
        head += f"[{count}" + ("" if plain else f"*{stride}") + (f":{used}" if used and not level else "") + "]"
    return head + kind


def fields(table: Row, owner: str, rows: list[Row]) -> str:
    return " ".join(spelled for spelled in (field(table, owner, r) for r in rows) if spelled)


def layout(table: Row, name: str) -> str:
    """Return the layout of a struct."""
    row = find(table, name)
    assert row, name
    return fields(table, name, row["fields"])
