"""Read C headers: the functions, enums, structs, types and constants that a folder of headers declares.

gcc expands the headers and measures the structs; this module reads the declarations in between.  It knows the C
that headers of an API use: no bit fields, no code but inline functions, which it skips.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["HeaderError", "plain", "read"]

Row = dict[str, Any]
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[A-Za-z_]\w*|\.?\d[\w.]*|<<|>>|\.\.\.|[^\s\w]')
WORD = re.compile(r"[A-Za-z_]\w*")
NOT_NAMES = {"const", "volatile", "struct", "union", "enum", "unsigned", "signed", "int", "char", "short", "long",
             "float", "double", "void", "bool"}
KINDS = ["functions", "enums", "structs", "opaque", "callbacks", "typedefs", "defines", "constants"]


class HeaderError(Exception):
    """Raised if the headers cannot be read."""


def run(*command: str, text: str = "") -> str:
    """Return what a command printed. If the command failed, raise HeaderError with its messages."""
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True)
    except FileNotFoundError:
        raise HeaderError(f"{command[0]} is not installed; it is needed to read the headers") from None
    if done.returncode:
        raise HeaderError(f"{command[0]} refused the headers:\n{done.stderr.strip()}")
    return done.stdout


def spell(tokens: list[str]) -> str:
    """Join the tokens of a type: `const void *`, `int32_t (*const)(void *, int)`."""
    out = ""
    for before, token in zip(["", *tokens], tokens, strict=False):
        glued = not before or before in "([*" or token in "[]),"
        if token == "(" and before == ")":
            glued = True
        if before == "*" and token == "(":
            glued = False
        out += token if glued else f" {token}"
    return out


def plain(c_type: str) -> str:
    """Spell a type in one way, whatever its spaces were."""
    return spell(TOKEN.findall(c_type))


def closing(tokens: list[str], start: int) -> int:
    """Return the index of the bracket that closes the one at `start`."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth = 0
    for at in range(start, len(tokens)):
        depth += (tokens[at] == tokens[start]) - (tokens[at] == pairs[tokens[start]])
        if not depth:
            return at
    raise HeaderError(f"no bracket closes {' '.join(tokens[start:start + 8])} ...")


def without_attributes(tokens: list[str]) -> tuple[list[str], bool]:
    """Drop `__attribute__((...))`; return also whether one of them was `deprecated`."""
    kept: list[str] = []
    deprecated = False
    at = 0
    while at < len(tokens):
        if tokens[at] == "__attribute__":
            end = closing(tokens, at + 1)
            deprecated |= "deprecated" in tokens[at:end]
            at = end + 1
        elif tokens[at] in ("extern", "__extension__"):
            at += 1
        else:
            kept.append("bool" if tokens[at] == "_Bool" else tokens[at])
            at += 1
    return kept, deprecated


def parts(tokens: list[str], separator: str) -> list[list[str]]:
    """Split a list of tokens at each separator that is outside of brackets."""
    found: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in ("(", "{", "[")) - (token in (")", "}", "]"))
        if token == separator and not depth:
            found.append([])
        else:
            found[-1].append(token)
    return [one for one in found if one]


def declarator(tokens: list[str]) -> tuple[str, list[str]]:
    """Split a declaration into its name, which may be missing, and the tokens of its type."""
    end = tokens.index("[") if "[" in tokens else len(tokens)
    if "(" in tokens:           # a pointer to a function: its name is in the first brackets
        end = closing(tokens, tokens.index("("))
    at = end - 1
    if at > 0 and WORD.fullmatch(tokens[at]) and tokens[at] not in NOT_NAMES \
            and tokens[at - 1] not in ("struct", "union", "enum"):
        return tokens[at], tokens[:at] + tokens[at + 1:]
    return "", tokens


def signature(tokens: list[str]) -> Row:
    """Read the parameters between the brackets of a function."""
    row: Row = {"params": []}
    for one in parts(tokens, ","):
        if one == ["..."]:
            row["variadic"] = True
        elif one != ["void"]:
            name, kind = declarator(one)
            row["params"].append({"name": name, "type": spell(kind)})
    return row


class Values:
    """Constants by name, and the values of integer expressions."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def of(self, tokens: list[str]) -> int | str | None:
        """Return the value of an expression; None if it is not a constant."""
        if len(tokens) == 1 and tokens[0].startswith('"'):
            text: str = ast.literal_eval(tokens[0])
            return text
        text = " ".join(re.sub(r"(?i)(?<=[0-9a-f])[ul]+$", "", one) if one[0].isdigit() else one for one in tokens)
        text = re.sub(r"\b0+(?=[0-7]+\b)", "0o", text)
        try:
            return self.computed(ast.parse(text, mode="eval").body)
        except (SyntaxError, ValueError):
            return None

    def computed(self, node: ast.expr) -> int:
        """Evaluate a tree of integers; raise ValueError for anything else."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.UnaryOp) and type(node.op) in (ast.USub, ast.UAdd, ast.Invert):
            value = self.computed(node.operand)
            return {ast.USub: -value, ast.UAdd: value, ast.Invert: ~value}[type(node.op)]
        if isinstance(node, ast.BinOp):
            left, right = self.computed(node.left), self.computed(node.right)
            if isinstance(node.op, (ast.LShift, ast.RShift)):
                return left << right if isinstance(node.op, ast.LShift) else left >> right
            values = {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right,
                      ast.BitOr: left | right, ast.BitAnd: left & right}
            if type(node.op) in values:
                return values[type(node.op)]
        raise ValueError("not a constant")


class Reader:
    """The declarations of one folder, in the order in which the compiler meets them."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {kind: [] for kind in KINDS}
        self.values = Values()
        self.tags: dict[str, Row] = {}      # enums and structs by the name after `enum` or `struct`

    def add(self, kind: str, header: str, /, **row: Any) -> Row:
        made = {"name": row.pop("name"), "header": header, **row}
        self.rows[kind].append(made)
        return made

    def define(self, header: str, line: str) -> None:
        """Read a line `#define NAME ...`."""
        name, brackets, rest = re.fullmatch(r"#define (\w+)(\([^)]*\))?(.*)", line).groups()  # type: ignore[union-attr]
        if brackets:
            self.add("defines", header, name=name, value=None, function_like=True)
        elif tokens := TOKEN.findall(rest):
            value = self.values.of(tokens)
            if isinstance(value, int):
                self.values.known[name] = value
            if value is not None:
                self.add("defines", header, name=name, value=value, kind="string" if isinstance(value, str) else "int")

    def statement(self, header: str, tokens: list[str]) -> None:
        """Read one declaration, without its semicolon."""
        tokens, deprecated = without_attributes(tokens)
        if not tokens or tokens[0] in ("_Static_assert", "static_assert") or "inline" in tokens[:3]:
            return
        if tokens[0] == "typedef":
            self.typedef(header, tokens[1:])
        elif tokens[:2] == ["static", "const"]:
            left, right = parts(tokens[2:], "=")
            value = self.values.of(right)
            self.values.known[left[-1]] = value if isinstance(value, int) else 0
            self.add("constants", header, name=left[-1], value=value, type=spell(left[:-1]), form="static const")
        elif "{" in tokens:
            self.record(header, tokens)
        elif "(" in tokens:
            at = tokens.index("(")
            self.add("functions", header, name=tokens[at - 1], returns=spell(tokens[:at - 1]),
                     **signature(tokens[at + 1:closing(tokens, at)]), deprecated=deprecated)

    def typedef(self, header: str, tokens: list[str]) -> None:
        if "{" in tokens:
            row = self.record(header, tokens)
            names = tokens[closing(tokens, tokens.index("{")) + 1:]
            if names and names[0] != row["name"]:
                tag, row["name"] = row["name"], names[0]
                if tag:
                    row["tag"] = tag
            return
        name, kind = declarator(tokens)
        if "(" in tokens:
            at = tokens.index("(")
            end = closing(tokens, at)
            self.add("callbacks", header, name=name, returns=spell(tokens[:at]),
                     **signature(tokens[end + 2:closing(tokens, end + 1)]))
        elif kind[0] in ("struct", "union", "enum") and kind[1] in self.tags and len(kind) == 2:
            row = self.tags[kind[1]]
            if name != kind[1]:
                row.update(name=name, tag=kind[1])
        elif kind[0] == "struct" or "*" in kind:
            more = {"tag": kind[1], "kind": "incomplete-struct"} if len(kind) == 2 else {"kind": "pointer"}
            self.add("opaque", header, name=name, alias=spell(kind), **more)
        else:
            self.add("typedefs", header, name=name, alias=spell(kind))

    def record(self, header: str, tokens: list[str]) -> Row:
        """Read an enum, a struct or a union with its body."""
        at = tokens.index("{")
        tag = tokens[at - 1] if at > 1 else ""
        body = tokens[at + 1:closing(tokens, at)]
        if tokens[0] == "enum":
            row = self.add("enums", header, name=tag, members=self.members(body))
        else:
            row = self.add("structs", header, name=tag, kind=tokens[0], fields=self.fields(body))
        if tag:
            self.tags[tag] = row
        return row

    def members(self, body: list[str]) -> list[Row]:
        found: list[Row] = []
        value = -1
        for one in parts(body, ","):
            one, _ = without_attributes(one)
            given = self.values.of(one[2:]) if len(one) > 1 else value + 1
            if not isinstance(given, int):
                raise HeaderError(f"enum member {' '.join(one)}: expected an integer constant")
            value = self.values.known[one[0]] = given
            found.append({"name": one[0], "value": value})
        return found

    def fields(self, body: list[str]) -> list[Row]:
        found: list[Row] = []
        for one in parts(body, ";"):
            one, _ = without_attributes(one)
            if "{" in one:
                at = one.index("{")
                end = closing(one, at)
                row: Row = {"name": "".join(one[end + 1:end + 2]), "type": one[0]}
                row["fields"] = self.fields(one[at + 1:end])
                if at == 2:
                    row["nested_tag"] = one[1]
                found.append(row)
                continue
            name, kind = declarator(one)
            row = {"name": name}
            if "[" in kind and "(" not in kind:
                at = kind.index("[")
                sizes = "".join(f"{token} " for token in kind[at:])
                row["array"] = [self.values.of(TOKEN.findall(size)) for size in re.findall(r"\[(.*?)\]", sizes)]
                kind = kind[:at]
            found.append({"name": name, "type": spell(kind), **row})
        return found


def expanded(folder: Path) -> list[tuple[str, str]]:
    """Return the lines of all headers after preprocessing, each with the header that it is from."""
    headers = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.h"))
    if not headers:
        raise HeaderError(f"{folder} has no file whose name ends in .h")
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "acl").symlink_to(folder.resolve())
        text = "".join(f'#include "acl/{name}"\n' for name in headers)
        # No include path names the package: what a header includes must be in the folder.
        out = run("gcc", "-E", "-dD", "-x", "c", "-I", made, "-I", f"{made}/acl", "-", text=text)
    lines, header = [], ""
    for line in out.splitlines():
        if marker := re.match(r'# \d+ "(.*?)"', line):
            inside = marker[1].startswith(f"{made}/acl/")
            header = marker[1].removeprefix(f"{made}/acl/") if inside else ""
        elif header:
            lines.append((header, line))
    return lines


def measure(folder: Path, structs: list[Row], tags: dict[str, Row]) -> None:
    """Add size, alignment and offsets to each struct, as gcc lays them out."""
    by_tag = {id(row): f"{row['kind']} {tag}" for tag, row in tags.items() if "fields" in row}

    def spelled(row: Row) -> str:
        return by_tag.get(id(row), row["name"])

    asked: list[tuple[Row, str, str]] = []
    for row in structs:
        asked += [(row, "size", f"sizeof({spelled(row)})"), (row, "align", f"_Alignof({spelled(row)})")]
        for one in row["fields"]:
            named = one["name"] or one["fields"][0]["name"]     # an unnamed union begins with its first field
            asked.append((one, "offset", f"offsetof({spelled(row)}, {named})"))
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "acl").symlink_to(folder.resolve())
        headers = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.h"))
        text = "#include <stdio.h>\n#include <stddef.h>\n" + "".join(f'#include "acl/{name}"\n' for name in headers)
        text += "int main(void)\n{\n" + "".join(f'    printf("%zu\\n", {what});\n' for *_, what in asked) + "}\n"
        run("gcc", "-w", "-x", "c", "-I", made, "-I", f"{made}/acl", "-", "-o", f"{made}/sizes", text=text)
        answers = run(f"{made}/sizes").split()
    for (row, key, _), answer in zip(asked, answers, strict=True):
        row[key] = int(answer)


def read(folder: Path) -> dict[str, list[Row]]:
    """Return what the headers below `folder` declare, by kind; the rows have the keys of acl_api.json."""
    reader = Reader()
    pending: list[str] = []
    depth = 0
    for header, line in expanded(folder):
        if line.startswith("#define"):
            reader.define(header, line)
        elif line.startswith("#undef"):
            name = line.split()[1]
            reader.rows["defines"] = [row for row in reader.rows["defines"] if row["name"] != name]
        elif not line.startswith("#"):
            for token in TOKEN.findall(line):
                depth += (token == "{") - (token == "}")
                body_ends = token == "}" and not depth and "inline" in pending[:4]
                if (token == ";" and not depth) or body_ends:
                    reader.statement(header, pending)
                    pending = []
                else:
                    pending.append(token)
    measure(folder, reader.rows["structs"], reader.tags)
    return reader.rows
