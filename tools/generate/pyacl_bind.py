"""Match the parameters and results of a pyACL function with those of the C function behind it.

For each parameter of C there are three cases. If C writes a result through it (`Binding.result_for`), it becomes a
variable whose address is passed. If it is the count of an array, it gets the length of that array. Otherwise it takes
the next Python parameter.  A row that does not fit raises an error, so that a wrong row cannot generate a function that
silently does something else.
"""

from __future__ import annotations

import re

from .api import Row
from .pyacl_kinds import config, split, struct_name

MEMBER = {"K": "k", "l": "L", "z": "s", "I": "u"}
# The C type of each letter; between these two no cast is needed.
NATURAL = {
    "b": {"signed char", "int8_t"}, "B": {"uint8_t"}, "h": {"int16_t"}, "H": {"uint16_t", "aclFloat16"},
    "i": {"int", "int32_t", "aclError"}, "I": {"uint32_t"}, "L": {"int64_t"}, "l": {"int64_t"},
    "k": {"uint64_t", "size_t"}, "K": {"uint64_t", "size_t"}, "f": {"float"},
}
WIDTH = {"B": 1, "i": 4, "I": 4, "f": 4, "L": 8, "k": 8, "K": 8, "s": 8}
INTEGERS = {"int", "int32_t", "uint32_t", "size_t", "uint64_t"}
NUMBERS = INTEGERS | {"int64_t", "int8_t", "int16_t", "uint8_t", "uint16_t", "float", "aclFloat16"}


def snake(name: str) -> str:
    """Return a C parameter's name in Python's style; it is used only for comparing."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def bare(c_type: str) -> str:
    """Return a type without const."""
    return re.sub(r"\s+", " ", re.sub(r"\bconst\b", "", c_type)).replace(" *", "*").strip()


# Names of a generated function's own variables and helpers, which its parameters must not have.
TAKEN = {"a", "args", "at", "n", "names", "pack", "ret", "room", "same", "self", "take", "text", "value", "what",
         "launch_config", "load_options", "malloc_config", "server_pids"}


def local(name: str) -> str:
    """Return the name of the variable for a parameter or result."""
    return name + "_" if name in TAKEN else name


class Binding:
    """The parts of a generated function."""

    def __init__(self, row: Row, table: Row) -> None:
        self.row = row
        self.table = table
        self.c: Row = next(f for f in table["functions"] if f["name"] == row["c"])
        self.status = self.c["returns"] == "aclError"
        self.params = [split(p) for p in row["params"]]
        outs = row["returns"][:-1] if self.status else row["returns"]
        self.results = [split(r)[:2] for r in outs]
        self.declarations: list[str] = []
        self.before: list[str] = []
        self.after: list[str] = []
        self.arguments: list[str] = []
        self.needs_what = False
        self.target = ""
        self.next = 0                       # index of the next Python parameter that is not passed to C yet
        self.group: list[str] = []          # arrays that were passed and whose count C takes later
        self.counted: str | None = None     # the array whose length was passed before it
        self.values: dict[str, str] = {}    # result -> expression
        self.late_after: list[str] = []     # lines after a successful call, before the results are made
        self.late: list[str] = []           # lines that must follow those of the parameters
        self.capacities: set[str] = set()   # Python parameters that limit a result; C takes them at another place
        self.skip = 0                       # number of C parameters to skip, because they were passed already
        self.room: tuple[str, str] | None = None    # an array result that waits for its count
        self.hands = {o["name"] for o in table["opaque"] if o["alias"].endswith("*")}
        self.opaque = {o["name"] for o in table["opaque"]} - self.hands
        self.enums = {e["name"] for e in table["enums"]}

    # ---- tests of a C parameter ----

    def result_for(self, p: Row) -> tuple[str, str] | None:
        """Return name and kind of the result that C writes through this parameter, or None.

        It is the result that has the name of the parameter, unless the next Python parameter has this name too.  If no
        result has the name, and the table of the C API calls the parameter `out` or `inout`, it is the next result
        whose name no parameter of C has.
        """
        if not self.status or "*" not in p["type"]:
            return None
        left = [(n, k) for n, k in self.results if n not in self.values and k != "="]
        name = snake(p["name"])
        for n, k in left:
            if snake(n) == name and not self.is_given(p):
                return n, k
        named = {snake(q["name"]) for q in self.c["params"]}
        if p["dir"] in ("out", "inout") and self.is_written(p):
            return next(((n, k) for n, k in left if snake(n) not in named), None)
        return None

    def is_given(self, p: Row) -> bool:
        """True if this is the next Python parameter. Then it is an input and not a result."""
        return self.next < len(self.params) and snake(self.params[self.next][0]) == snake(p["name"])

    def is_written(self, p: Row) -> bool:
        """True if C can write a result through a parameter of this type."""
        base = bare(p["type"])
        if base in ("void*", "const void*") or "[" in base:
            return False
        stars = len(base) - len(base.rstrip("*"))
        return not (stars == 1 and base.rstrip("*") in self.opaque)

    # ---- C's parameters, in order ----

    def parameter(self, p: Row) -> None:
        if self.skip:
            self.skip -= 1
            return
        found = self.result_for(p)
        kind = self.params[self.next][1] if self.next < len(self.params) else ""
        if found:
            self.write(p, *found)
        elif self.is_count(p, kind):
            self.count(p, kind)
        elif self.is_room_count(p):
            self.room_count(p)
        else:
            self.read(p, kind)

    def is_count(self, p: Row, kind: str) -> bool:
        """True if this C parameter is the length of an array."""
        if bare(p["type"]) not in INTEGERS:
            return False
        arrays = kind[:1] == "[" or config(kind) == "server_pids"
        waiting = bool(self.group) and re.search(r"num|count|size|batches", p["name"], re.I) is not None
        return (arrays and not self.group) or (waiting and not self.is_given(p))

    def count(self, p: Row, kind: str) -> None:
        c_type = bare(p["type"])
        cast = "" if c_type == "size_t" else f"<{c_type}> "
        if self.group:          # the arrays precede their count
            self.arguments.append(f"{cast}{self.group[0]}_count")
            self.group = []
            return
        self.counted = local(self.params[self.next][0])
        self.arguments.append(f"{cast}{self.counted}_count")

    def is_room_count(self, p: Row) -> bool:
        return self.room is not None and bare(p["type"]).rstrip("*") in INTEGERS and p["type"].endswith("*")

    def room_count(self, p: Row) -> None:
        """Pass the address of a count of elements in an array result; C writes it, and may read it as a limit."""
        assert self.room
        result, capacity = self.room
        name = local(result)
        c_type = bare(p["type"]).rstrip("*")
        self.declarations.append(f"{c_type} {name}_found")
        self.late.append(f"{name}_found = <{c_type}> {capacity}")
        self.arguments.append(f"&{name}_found")
        self.late_after.insert(0, f"{capacity} = min({name}_found, {capacity})")

    # ---- parameters ----

    def read(self, p: Row, kind: str) -> None:
        """Pass the next Python parameter."""
        while kind == "I-":
            self.next += 1
            kind = self.params[self.next][1] if self.next < len(self.params) else ""
        assert kind, f"{self.row['name']}: nothing left for {p['name']} {p['type']}"
        i, name = self.next, local(self.params[self.next][0])
        self.next += 1
        if kind[0] == "[":
            return self.read_array(p, kind, i, name)
        self.counted, self.group = None, []
        if kind[0] == "{" or config(kind):
            self.read_struct(p, kind, i, name)
        elif kind == "s+":
            self.arguments += [f"a[{i}].s", f"strlen(a[{i}].s)"]
            self.skip = 1
        elif kind in ("K*", "i&"):
            given = self.params[i][0]
            c_type = bare(p["type"]).rstrip("*")
            c_type = "uint64_t" if c_type == "void" else c_type
            self.declarations.append(f"{c_type} {name}")
            self.before.append(f"{name} = <{c_type}> a[{i}].{MEMBER.get(kind[0], kind[0])}")
            self.arguments.append(f"&{name}")
            self.values[given] = f"<int> {name}"
        else:
            self.arguments.append(self.plain(p, kind, i))

    def plain(self, p: Row, kind: str, i: int) -> str:
        """Return the expression for one number, handle or string that the function was given."""
        c_type, base = p["type"], bare(p["type"])
        if kind in "sz":
            return f"a[{i}].s" if "const" in c_type else f"<char *> a[{i}].s"
        if base == "void*" or base in self.hands or c_type == "const void *":
            return f"a[{i}].p"
        if "*" in base:
            return f"<{c_type}> a[{i}].p"
        member = f"a[{i}].{MEMBER.get(kind, kind)}"
        return member if base in NATURAL[kind] else f"<{base}> {member}"

    def read_array(self, p: Row, kind: str, i: int, name: str) -> None:
        """Read a list: pack it, pass its address, and keep its length for the count."""
        self.needs_what = True
        inner = kind[1]
        given = f"<object> a[{i}].o"
        if kind == "[[L]]":
            return self.read_lists(i, name, given)
        if inner == "{":
            s = struct_name(kind)
            packed, size = f"pack_structs({given}, LAYOUT_{s}, sizeof({s}), what, {i + 1})", f"sizeof({s})"
        elif kind == "[LL]":
            packed, size = f"pack_pairs({given}, what, {i + 1})", "16"
        else:
            call = {"!": f"pack_pids({given}", "a": f'pack_array({given}, c"{inner}"'}.get(
                kind[-1], f'pack({given}, c"{inner}"')
            packed, size = f"{call}, what, {i + 1})", str(WIDTH[inner])
        self.declarations.append(f"size_t {name}_count")
        self.before += [f"{name} = {packed}", f"{name}_count = <size_t> len({name}) // {size}"]
        if self.counted not in (None, name) or self.group:
            first = self.group[0] if self.group else self.counted
            self.before.append(f"same({first}_count, {name}_count, what)")
        self.pointer(p, name)
        if self.counted is None:
            self.group.append(name)

    def read_lists(self, i: int, name: str, given: str) -> None:
        """Read a list of lists: C takes a count, the lengths, and the addresses."""
        self.declarations += [f"size_t {name}_count", f"void *{name}_at", f"void *{name}_counts_at"]
        self.before += [
            f"{name}_counts, {name}, _{name}_held = pack_lists({given}, what, {i + 1})",
            f"{name}_count = <size_t> len({name}) // 8",
            f"{name}_at = at({name})",
            f"{name}_counts_at = at({name}_counts)",
        ]
        self.arguments += [f"<const int *> {name}_counts_at", f"<const int64_t **> {name}_at"]
        self.skip = 1

    def pointer(self, p: Row, name: str) -> None:
        """Pass the address of a packed value."""
        base = bare(p["type"])
        self.declarations.append(f"void *{name}_at")
        self.before.append(f"{name}_at = at({name})")
        if "[][2]" in base:
            self.arguments.append(f"<int64_t (*)[2]> {name}_at")
        elif "[" in base:
            self.arguments.append(f"<{p['type'].partition('[')[0].strip()} *> {name}_at".replace("*const *", "**"))
        else:
            self.arguments.append(f"<{p['type']}> {name}_at")

    def read_struct(self, p: Row, kind: str, i: int, name: str) -> None:
        """Read a dict as a struct."""
        self.needs_what = True
        given = f"<object> a[{i}].o"
        converter = config(kind)
        self.declarations.append(f"void *{name}_at")
        if converter == "server_pids":
            self.declarations.append(f"size_t {name}_count")
            self.before.append(f"{name}, {name}_count = {converter}({given}, what, {i + 1})")
            self.group.append(name)
        elif converter:
            self.before.append(f"{name} = {converter}({given}, what, {i + 1})")
        else:
            s = struct_name(kind)
            self.before.append(f"{name} = pack_struct({given}, LAYOUT_{s}, sizeof({s}), what, {i + 1})")
        self.before.append(f"{name}_at = at({name})")
        if kind[-1] == "v":
            s = struct_name(kind)
            self.declarations.append(f"{s} *{name}_is")
            self.before.append(f"{name}_is = <{s} *> {name}_at")
            self.arguments.append(f"{name}_is[0]")
        else:
            self.arguments.append(f"<{p['type']}> {name}_at")

    # ---- results ----

    def write(self, p: Row, name: str, kind: str) -> None:
        """Declare a variable for C to write to."""
        result, name, base = name, local(name), bare(p["type"])
        if kind[0] == "[":
            return self.write_array(p, result, name, kind)
        if kind[0] == "{":
            return self.write_struct(result, name, kind)
        if "@" in kind:
            return self.write_text(result, name, kind)
        inner = "uint64_t" if base == "void*" else re.sub(r"\*\s*(const)?$", "", p["type"]).strip()
        inner = re.sub(r"\*const$|\* const$", "", inner)
        target = bare(inner)
        pointer = target.endswith("*") or target in self.hands
        self.declarations.append(f"{inner}{'' if inner.endswith('*') else ' '}{name} = {'NULL' if pointer else '0'}")
        if target in self.enums:
            self.declarations[-1] = f"{inner} {name} = <{inner}> 0"
        self.arguments.append(f"&{name}")
        self.values[result] = f"address(<void *> {name}, ret)" if pointer else (
            f"<int> {name}" if target in self.enums else name)

    def write_struct(self, result: str, name: str, kind: str) -> None:
        s = struct_name(kind)
        self.late += [f"{name} = room(sizeof({s}))", f"{name}_at = at({name})"]
        self.declarations.append(f"void *{name}_at")
        self.arguments.append(f"<{s} *> {name}_at")
        absent = "None" if kind[-1] == "^" else "{}"
        self.values[result] = f"unpack_struct({name}_at, LAYOUT_{s}) if ret == 0 else {absent}"

    def write_text(self, result: str, name: str, kind: str) -> None:
        limit = kind.partition("@")[2]
        self.needs_what = True
        self.declarations.append(f"char *{name}_at")
        most = ", 1024" if result == "key" else ""      # pyACL's own limit for keys
        self.late += [f"{name} = bounded({self.number(limit)}, what{most})", f"{name}_at = <char *> at({name})"]
        self.arguments.append(f"{name}_at")
        self.values[result] = f'text({name}_at) if ret == 0 else ""'

    def number(self, said: str) -> str:
        """Return the expression for a limit: a number, or the name of a parameter."""
        if said.isdigit():
            return said
        i = next(i for i, q in enumerate(self.params) if q[0] == said)
        kind = self.params[i][1]
        return f"{local(said)}_count" if kind[0] == "[" else f"a[{i}].{MEMBER.get(kind, kind)}"

    def write_array(self, p: Row, result: str, name: str, kind: str) -> None:
        said = re.split(r"[\]\}]+", kind)[-1].rstrip("^")
        capacity = f"{name}_most"
        element = struct_name(kind) if kind[1] == "{" else bare(p["type"])[:-1]
        absent = "None" if kind[-1] == "^" else "[]"
        self.declarations += [f"size_t {capacity}", f"void *{name}_at"]
        self.capacities.add(said)
        self.late.append(f"{capacity} = {self.number(said)}")
        if kind[-1] == "^":
            self.late += [f"if {capacity} > 4096:", "    return None, <int> ACL_ERROR_INVALID_PARAM"]
        self.late += [f"{name} = room_for({capacity}, sizeof({element}), what)", f"{name}_at = at({name})"]
        self.needs_what = True
        self.arguments.append(f"<{element} *> {name}_at" if kind[1] == "{" else f"<{bare(p['type'])}> {name}_at")
        read = (f"unpack_structs({name}_at, {capacity}, sizeof({element}), LAYOUT_{element})"
                if kind[1] == "{" else f'unpack({name}_at, {capacity}, c"{kind[1]}")')
        self.late_after.append(f"{name} = {read}")
        self.values[result] = f"{name} if ret == 0 else {absent}"
        self.room = (result, capacity)

    # ---- after the last parameter ----

    def finish(self) -> None:
        """Write the lines for the status of the call, and for the returned values."""
        self.before += self.late
        left = [q for q in self.params[self.next:] if q[1] != "I-" and q[0] not in self.capacities]
        assert not left, f"{self.row['name']}: parameters left over: {left}"
        returns = self.c["returns"]
        if self.status:
            self.status_result()
        elif returns == "void":
            self.after.append("return None")
        else:
            self.value_result(returns)

    def status_result(self) -> None:
        self.declarations.append("aclError ret")
        self.target = "ret = "
        values = []
        for name, kind in self.results:
            if kind == "=" and name not in self.values:
                i = next(i for i, q in enumerate(self.params) if q[0] == name)
                values.append(f"a[{i}].k")
            else:
                assert name in self.values, f"{self.row['name']}: nothing writes {name}"
                values.append(self.values[name])
        either = [v.partition(" if ret == 0 else ") for v in values]
        if any(absent for _, _, absent in either):
            failed = [absent or good for good, _, absent in either]
            self.after += ["if ret != 0:", f"    return {', '.join([*failed, 'ret'])}", *self.late_after]
        self.after.append(f"return {', '.join([*(good for good, _, _ in either), 'ret'])}")

    def value_result(self, returns: str) -> None:
        base = bare(returns)
        kept = returns if base not in self.hands else base
        self.declarations.append(f"{kept}{'' if kept.endswith('*') else ' '}value")
        self.target = "value = "
        if base == "char*":
            self.after.append("return text(value)")
        elif base.endswith("*") or base in self.hands:
            self.after.append("return address(<void *> value, 0)")
        else:
            self.after.append("return <int> value" if base in self.enums else "return value")


def bind(row: Row, table: Row) -> Binding:
    """Return the binding of one row."""
    b = Binding(row, table)
    for p in b.c["params"]:
        b.parameter(p)
    b.finish()
    return b
