"""Make the pages of the API reference: every name in `__all__` of every public module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MODULES", "names", "pages", "public_modules"]

#: The purpose of each public module, in the order of the reference. A module that is not listed comes after these,
#: with the first sentence of its docstring. `acl` is divided into this package's own names and pyACL's.
MODULES = {
    "acl": "Pools, buffers, streams, models, operators, kernels",
    "acl.testing": "A fixture for tests of your own",
    "acl.sim": "Controls of the simulator",
    "acl.samples": "Small models to try the package with",
    "acl.metrics": "Prometheus and OpenTelemetry",
    "acl.torch": "torch_npu's memory from a pool",
    "acl.mindspore": "MindSpore's memory from a pool",
    "acl.vllm": "vLLM-Ascend's sleep mode",
    "acl.ge": "GE's Python session",
    "acl.ort": "ONNX Runtime's CPU memory",
    "acl.rt": "pyACL: devices, streams, memory, kernels",
    "acl.mdl": "pyACL: models",
    "acl.op": "pyACL: single operators",
    "acl.prof": "pyACL: profiling",
    "acl.util": "pyACL: addresses, threads",
}
PYACL = "acl.pyacl.generated._root"
REMARK = ("`import aclpool as acl` finds this package, even if CANN's own module `acl` is installed.")


def public_modules(package: Path) -> list[str]:
    """Return the modules of the package that its users import: those of `MODULES` first, in its order."""
    found = {f"acl.{path.stem}" for path in [*package.glob("*.py"), *package.glob("*.pyi")] if path.stem[0] != "_"}
    found |= {f"acl.{path.parent.name}" for path in package.glob("*/__init__.py")
              if path.parent.name[0] != "_" and listed(ast.parse(path.read_text(encoding="utf-8")))}
    return ["acl", *(name for name in MODULES if name in found), *sorted(found - MODULES.keys())]


def source(package: Path, module: str) -> ast.Module:
    """Return the parsed source of a module, or of its stub."""
    path = package.joinpath(*module.split(".")[1:])
    for candidate in (path / "__init__.py", path.with_suffix(".pyi"), path.with_suffix(".py")):
        if candidate.is_file():
            return ast.parse(candidate.read_text(encoding="utf-8"))
    raise ValueError(f"{module}: no source and no stub in {package}")


def listed(tree: ast.Module) -> list[str] | None:
    """Return `__all__` of a parsed module; None if it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def names(package: Path, module: str) -> list[str]:
    """Return `__all__` of a public module, read from its source.

    Raises
    ------
    ValueError
        If the module has no `__all__`.
    """
    found = listed(source(package, module))
    if found is None:
        raise ValueError(f"{module} has no __all__")
    return found


def from_pyacl(package: Path) -> set[str]:
    """Return the names of `acl` that are functions of pyACL."""
    return {alias.name for node in source(package, "acl").body
            if isinstance(node, ast.ImportFrom) and node.module == PYACL for alias in node.names}


def summary(package: Path, module: str) -> str:
    """Return the first sentence of a module's docstring."""
    return (ast.get_docstring(source(package, module)) or "").partition("\n\n")[0].replace("\n", " ")


def page(name: str, text: str, members: list[str], module: str) -> str:
    """Return one page: its title, a sentence, an entry for each name."""
    entries = "".join(f"::: {module}.{member}\n\n" for member in members)
    return f"# {name}\n\n{text}\n\n{entries}"


def pages(package: Path) -> Iterator[tuple[str, str, str]]:
    """Yield file, title and Markdown of each page of the reference; the first lists the others."""
    modules = public_modules(package)
    pyacl = from_pyacl(package)
    made = []
    for module in modules:
        members = names(package, module)
        text = re.sub(r"::?$", ".", summary(package, module))
        purpose = MODULES.get(module, text)
        if module != "acl":
            made.append((f"api/{module}.md", module, purpose, page(module, text, members, module)))
            continue
        ours = sorted((name for name in members if name not in pyacl and f"acl.{name}" not in modules), key=str.lower)
        made.append(("api/acl.md", "acl", purpose, page("acl", f"{text} {REMARK}", ours, "acl")))
        text = "pyACL's functions in `acl` itself, with pyACL's conventions: a status, or a tuple that ends in one."
        made.append(("api/pyacl.md", "acl: pyACL", "pyACL: start and end, tensors, data buffers",
                     page("acl: pyACL's functions", text, sorted(pyacl & set(members)), PYACL)))
    rows = "".join(f"| [{name}]({file.removeprefix('api/')}) | {purpose} |\n" for file, name, purpose, _ in made)
    yield "api/index.md", "API reference", (
        f"# API reference\n\nEvery public name, from the stubs and the docstrings. {REMARK}\n\n"
        f"| module | for |\n|---|---|\n{rows}")
    for file, name, _, text in made:
        yield file, name, text
