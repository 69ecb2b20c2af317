"""The kinds of parameters and results in `pyacl_api.json`, and their Python types.

A parameter is `name:kind`, a result too; `?` at the end means that it is optional.

    b B h H i I l L k K f s z O    pyACL's letters, those of PyArg_Parse
    s+           a string, and its length as C's next parameter
    I-           taken, but not passed on
    i&           in and out: passed by its address
    K*           a number that C takes by its address
    [L] [k] [s]  a list of numbers or strings; C's count is its length (`!`: process ids, `a`: an
                 ndarray is accepted)
    [LL] [[L]]   a list of pairs, a list of lists
    {Struct}     a dict (`v`: by value), [{Struct}] a list of dicts
    cfg:NAME     converted by `NAME` of acl/pyacl/_config.pyx

    results:     letters; {Struct} a dict ({} if the call failed; with ^ None); s@P a text of at most
                 P bytes, where P is a parameter or a number; [L]P a list of P elements;
                 = the value of the parameter of that name
"""

from __future__ import annotations

import re

from .api import Row

CONFIGS = {"launch_config", "load_options", "malloc_config", "server_pids"}
WORDS = {
    "fn": "Callable[..., object]", "func": "Callable[..., object]", "callback": "Callable[..., object]",
}


def split(spelled: str) -> tuple[str, str, bool]:
    """Split a parameter: `config_path:s?` gives ("config_path", "s", True)."""
    name, _, kind = spelled.partition(":")
    return name, kind.rstrip("?"), kind.endswith("?")


def config(kind: str) -> str | None:
    """Return the name of the converter in acl/pyacl/_config.pyx, or None if the kind has none."""
    name = kind.removeprefix("cfg:")
    return name if name in CONFIGS else None


def letter(kind: str) -> str:
    """Return the letter of a kind in the format string of `take`."""
    if kind[0] in "[{" or config(kind):
        return "O"
    return kind[0]


def letters(row: Row) -> str:
    """Return the letters of all parameters, with `|` before the optional ones."""
    text, optional = "", False
    for spelled in row["params"]:
        _, kind, may = split(spelled)
        if may and not optional:
            text, optional = text + "|", True
        text += letter(kind)
    return text


def text_signature(row: Row) -> str:
    """Return a signature such as `($module, /, size, policy)`."""
    if not row["params"]:
        return "($module, /, *ignored)"
    names = [split(p)[0] + ("=..." if split(p)[2] else "") for p in row["params"]]
    return f"($module, /, {', '.join(names)})"


def parameter_type(name: str, kind: str) -> str:
    """Return the type of a parameter in the stub."""
    if kind == "O":
        return WORDS.get(name, "Any")
    if config(kind) or kind.startswith("[{"):
        return "dict[str, Any]" if config(kind) == "malloc_config" else "list[dict[str, Any]]"
    if kind[0] == "{":
        return "dict[str, Any]"
    if kind in ("[LL]", "[[L]]"):
        return "list[list[int]]"
    if kind[0] == "[":
        return {"s": "list[str]", "f": "list[float]"}.get(kind[1], "list[int]") if kind[-1] != "a" else "Any"
    return {"s": "str", "z": "str | None", "f": "float"}.get(kind[0], "int")


def result_type(kind: str) -> str:
    """Return the type of a result in the stub."""
    if kind == "=":
        return "int"
    if kind[0] == "{":
        return "dict[str, Any] | None" if kind[-1] == "^" else "dict[str, Any]"
    if kind[0] == "[":
        element = "dict[str, Any]" if kind[1] == "{" else "int"
        return f"list[{element}]" + (" | None" if kind[-1] == "^" else "")
    if kind.startswith("s"):
        return "str" if "@" in kind else "str | None"
    return {"O": "Any", "f": "float"}.get(kind[0], "int")


def result(row: Row) -> str:
    """Return the type of what a function returns."""
    types = [result_type(split(r)[1]) for r in row["returns"]]
    if not types:
        return "None"
    return types[0] if len(types) == 1 else f"tuple[{', '.join(types)}]"


def stub_line(row: Row) -> str:
    """Return the declaration of a function in the stub."""
    name = row["name"].rpartition(".")[2]
    if not row["params"]:
        return f"def {name}(*ignored: object) -> {result(row)}: ..."
    spelled = []
    for p in row["params"]:
        parameter, kind, optional = split(p)
        spelled.append(f"{parameter}: {parameter_type(parameter, kind)}" + (" = ..." if optional else ""))
    line = f"def {name}({', '.join(spelled)}) -> {result(row)}: ..."
    if len(line) <= 110:
        return line
    return "\n".join([f"def {name}(", *[f"    {s}," for s in spelled], f") -> {result(row)}: ..."])


STRUCT = re.compile(r"\{(\w+)\}")


def struct_name(kind: str) -> str:
    """Return the name of a struct: `aclrtUuid` for `[{aclrtUuid}]`."""
    found = STRUCT.search(kind)
    assert found, kind
    return found[1]
