"""The importer of CANN's headers: it finds no change in our own headers, and lists each change in a copy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADERS = ROOT / "acl/include/acl"
TABLE = ROOT / "tools/generate/acl_api.json"
#: Text of acl_rt.h, its replacement in the copy, and the line that the importer prints.
CHANGES = [
    ("aclError aclrtFree(void *devPtr);", "aclError aclrtFree(void *devPtr, uint32_t flags);",
     "changed function aclrtFree: parameter flags = uint32_t added"),
    ("aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream);",
     "aclError aclrtNewCall(const char *name, size_t *size, ...) __attribute__((deprecated));",
     "added function aclrtNewCall (acl_rt.h)"),
    ("aclError aclrtResetEvent(", "aclError aclrtNewCall(", "removed function aclrtResetEvent (acl_rt.h)"),
    ("    size_t numAttrs;\n", "    size_t numAttrs;\n    uint8_t rsv[16];\n",
     "changed struct aclrtMallocConfig: field rsv = uint8_t[16] added"),
    ("", "", "changed struct aclrtMallocConfig: size 16 -> 32"),
    ("ACL_MEMCPY_DEFAULT = 4,", "ACL_MEMCPY_DEFAULT = 1 << 5, ACL_MEMCPY_NEXT,",
     "changed enum aclrtMemcpyKind: member ACL_MEMCPY_DEFAULT: 4 -> 32"),
    ("", "", "changed enum aclrtMemcpyKind: member ACL_MEMCPY_NEXT = 33 added"),
    ("#define ACL_EVENT_IPC 64", "#define ACL_EVENT_IPC (0x1UL << 7)", "changed define ACL_EVENT_IPC: value 64 -> 128"),
    ("#define ACL_EVENT_EXTERNAL 32\n", "", "removed define ACL_EVENT_EXTERNAL (acl_rt.h)"),
    ("#define ACL_EVENT_SYNC 1\n", "#define ACL_EVENT_SYNC 1\n#define ACL_NEW_NAME \"text\"\n",
     "added define ACL_NEW_NAME (acl_rt.h)"),
    ("#define ACL_EVENT_TIME_LINE 8\n",
     "#define ACL_EVENT_TIME_LINE 8\nstatic const int ACL_ERROR_NEW_CODE = 107999;\n"
     "typedef struct aclrtNewThing aclrtNewThing;\ntypedef void (*aclrtNewFunc)(void *data, int32_t code);\n"
     "struct NewWithoutTypedef { int8_t a; int64_t b; };\n"
     "static inline int newInline(int a) { if (a) { a++; } return a; }\n",
     "added error code ACL_ERROR_NEW_CODE (acl_rt.h)"),
    ("", "", "added type aclrtNewThing (acl_rt.h)"),
    ("", "", "added callback aclrtNewFunc (acl_rt.h)"),
    ("", "", "added struct NewWithoutTypedef (acl_rt.h)"),
]


def imported(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the importer on a folder of headers."""
    return subprocess.run([sys.executable, "-m", "tools.generate.import_headers", str(folder), *options],
                          cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """Return the folder of a copy of our headers with all of CHANGES."""
    folder = tmp_path / "headers"
    shutil.copytree(HEADERS, folder)
    file = folder / "acl_rt.h"
    text = "".join(line for line in file.read_text().splitlines(keepends=True) if "aclrtMallocConfig," not in line
                   and "sizeof(struct aclrtMallocConfig)" not in line)
    for old, new, _ in CHANGES:
        if old in text:
            text = text.replace(old, new, 1)
    file.write_text(text)
    return folder


def test_our_own_headers_have_no_difference() -> None:
    done = imported(HEADERS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no difference\n", "")


def test_each_change_of_a_copy_is_listed(changed: Path) -> None:
    done = imported(changed)
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == sorted(said for *_, said in CHANGES)


def test_written_table_equals_the_headers_and_keeps_other_lines(changed: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    shutil.copy(TABLE, table)
    assert imported(changed, "--write", "--table", str(table)).returncode == 0
    assert imported(changed, "--table", str(table)).stdout == "no difference\n"
    before, after = json.loads(TABLE.read_text()), json.loads(table.read_text())
    functions = {row["name"]: row for row in after["functions"]}
    assert functions["aclrtFree"]["params"] == [
        {"name": "devPtr", "type": "void *", "dir": "in"},
        {"name": "flags", "type": "uint32_t", "dir": "in", "dir_source": "inferred"},
    ]
    new = functions["aclrtNewCall"]
    assert (new["since"], new["deprecated"], new["variadic"]) == ("newer", True, True)
    assert [one["dir"] for one in new["params"]] == ["in", "out"]
    struct = next(row for row in after["structs"] if row["name"] == "NewWithoutTypedef")
    assert (struct["size"], struct["align"], [one["offset"] for one in struct["fields"]]) == (16, 8, [0, 8])
    assert len(after["functions"]) == len(before["functions"])
    untouched = {row["name"]: row for row in before["functions"]}
    assert all(untouched[name] == row for name, row in functions.items() if name not in ("aclrtFree", "aclrtNewCall"))


def test_folder_without_headers_is_refused(tmp_path: Path) -> None:
    done = imported(tmp_path)
    assert done.returncode == 2 and "has no file whose name ends in .h" in done.stderr


def test_header_that_does_not_compile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "acl_rt.h").write_text('#include "acl/missing.h"\n')
    done = imported(tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("import_headers: gcc refused the headers:")
