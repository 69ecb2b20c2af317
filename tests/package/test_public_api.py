"""The public names: each is importable, documented and stubbed, and no other name is visible."""

import ast
import importlib
import inspect
import json
import types
from pathlib import Path

import numpy as np
import pytest
from support.child import run_python

import acl
import aclpool

FOLDER = Path(acl.__file__).parent
OURS = sorted(
    set(acl.__all__)
    - set(importlib.import_module("acl.pyacl.generated._root").__all__)
    - {"mdl", "op", "prof", "rt", "util"}
)
MODULES = ["runtime._buffer", "runtime._copy", "runtime._device", "bind._error", "bind.generated._libacl",
           "runtime._stream"]


def stub_of(module: str) -> Path:
    """Return the path of the stub of a module below `acl`."""
    return FOLDER / f"{module.replace('.', '/')}.pyi"


def stubbed(path: Path) -> set[str]:
    """Return the names that a stub defines at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


@pytest.mark.parametrize("name", OURS)
def test_each_public_name_exists_and_is_documented(name: str) -> None:
    thing = getattr(acl, name)
    assert (inspect.getdoc(thing) or "").strip(), f"acl.{name} has no docstring"


@pytest.mark.parametrize("name", [n for n in OURS if inspect.isclass(getattr(acl, n))])
def test_each_member_of_a_class_is_documented(name: str) -> None:
    kind = getattr(acl, name)
    for member, thing in vars(kind).items():
        if not member.startswith("_") and (callable(thing) or inspect.isdatadescriptor(thing)):
            readonly = type(thing).__name__ in {"getset_descriptor", "member_descriptor"}
            assert thing.__doc__ or readonly, f"acl.{name}.{member} has no docstring"


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_has_a_stub(module: str) -> None:
    made = importlib.import_module(f"acl.{module}")
    names = stubbed(stub_of(module))
    assert set(made.__all__) <= names
    assert not {name for name in names if not hasattr(made, name)}


@pytest.mark.parametrize("module", ["runtime._buffer", "runtime._stream", "runtime._device"])
def test_each_member_has_a_stub(module: str) -> None:
    made = importlib.import_module(f"acl.{module}")
    for node in ast.parse(stub_of(module).read_text()).body:
        if isinstance(node, ast.ClassDef):
            kind = getattr(made, node.name)
            members = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            public = {name for name in vars(kind) if not name.startswith("_")}
            assert public == {name for name in members if not name.startswith("_")}


def parameters(text: str) -> list[str]:
    """Return the names of a signature's parameters, and the star, without types and defaults."""
    return [part.split("=")[0].split()[-1] for part in text.split(", ")]


@pytest.mark.parametrize("name", ["Pool", "Stream", "Event", "Model", "Buffer", "PinnedPool"])
def test_signature_of_a_class_equals_that_of_its_stub(name: str) -> None:
    kind = getattr(acl, name)
    stub = ast.parse(stub_of(kind.__module__.removeprefix("acl.")).read_text())
    found = next(node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name)
    init = next(node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    wanted = [arg.arg for arg in init.args.args[1:]]
    wanted += ["*", *(arg.arg for arg in init.args.kwonlyargs)] if init.args.kwonlyargs else []
    first = kind.__doc__.splitlines()[0]
    assert parameters(first.removeprefix(f"{name}(").removesuffix(")")) == wanted


def test_list_of_public_names_is_complete_and_without_duplicates() -> None:
    assert len(acl.__all__) == len(set(acl.__all__))
    leaked = {
        name
        for name, thing in vars(acl).items()
        if not name.startswith("_")
        and name not in acl.__all__
        and not isinstance(thing, types.ModuleType)
    }
    assert leaked <= {"TYPE_CHECKING"}


def test_errors_are_raised_from_one_module() -> None:
    for name in OURS:
        thing = getattr(acl, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            assert issubclass(thing, acl.AclError)


def test_public_names_do_not_collide_with_pyacl_names() -> None:
    table = Path(__file__).parents[2] / "tools/generate/pyacl_api.json"
    rows = json.loads(table.read_text())["functions"]
    theirs = {row["name"].split(".")[1] for row in rows} | {"media", "himpi", "blas", "fv"}
    assert theirs.isdisjoint(OURS)


def test_dir_lists_the_public_names() -> None:
    assert set(acl.__all__) <= set(dir(acl))


@pytest.mark.parametrize("module", [acl, aclpool], ids=["acl", "aclpool"])
def test_dir_lists_only_public_names_and_adapters_of_frameworks(module: types.ModuleType) -> None:
    named = {name for name in dir(module) if not name.startswith("__")}
    assert named - set(acl.__all__) == {"mindspore", "torch"}


def test_from_acl_import_star_imports_no_framework() -> None:
    done = run_python("import sys; from acl import *; print(sorted({'torch', 'mindspore'} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'acl' has no attribute 'nonsense'"):
        acl.nonsense  # noqa: B018


def test_aclpool_forwards_every_name() -> None:
    assert [name for name in acl.__all__ if getattr(aclpool, name) is not getattr(acl, name)] == []
    assert set(acl.__all__) <= set(dir(aclpool))


def test_submodules_of_aclpool_are_those_of_acl() -> None:
    done = run_python("""
        import aclpool.sim, aclpool.rt, aclpool.tools.cli
        from aclpool.sim import fault
        import acl, acl.sim, acl.tools.cli
        print(aclpool.sim is acl.sim, aclpool.rt is acl.rt, fault is acl.sim.fault)
        print(acl.sim.__spec__.name, acl.sim.__name__, acl.tools.cli is aclpool.tools.cli)
        try:
            import aclpool.nonsense
        except ModuleNotFoundError as error:
            print(error)
    """)
    assert done.stdout.splitlines() == [
        "True True True", "acl.sim acl.sim True", "No module named 'aclpool.nonsense'",
    ], done.stderr


def test_package_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert acl.__version__ == version("aclpool")


def test_pxd_and_headers_are_shipped() -> None:
    for name in (
        "__init__.pxd",
        "_buffer.pxd",
        "_capi.pxd",
        "_core.pxd",
        "_error.pxd",
        "_libacl.pxd",
        "_pool.pxd",
        "_runtime.pxd",
        "_stream.pxd",
        "bind/_error.pxd",
        "bind/generated/_libacl.pxd",
        "runtime/_buffer.pxd",
        "runtime/_stream.pxd",
    ):
        assert (FOLDER / name).is_file()
    assert (FOLDER / "py.typed").is_file()


def modules_used(path: Path) -> set[str]:
    """Return the modules of this package that an example imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.replace("aclpool", "acl") for name in names if name.split(".")[0] in ("acl", "aclpool")}


def test_examples_import_public_modules_only() -> None:
    public = {"acl", "acl.testing", *(f"acl.{name}" for name in acl.__all__)}
    examples = sorted((Path(__file__).parents[2] / "examples").rglob("*.py"))
    used = {path.name: modules_used(path) for path in examples}
    assert any("acl.samples" in modules for modules in used.values())
    assert {name: modules - public for name, modules in used.items() if modules - public} == {}


def test_samples_give_what_numpy_computes() -> None:
    built = {"encoder": acl.samples.encoder(), "detector": acl.samples.detector()}
    models = {name: acl.Model(model.to_bytes()) for name, model in built.items()}
    for request in acl.samples.requests(4, seed=1):
        results = models[request.model](*request.inputs)
        rights = acl.samples.evaluate(built[request.model], *request.inputs)
        for result, right in zip(results, rights, strict=True):
            np.testing.assert_allclose(result, right, rtol=1e-3, atol=1e-4)
    for model in models.values():
        model.close()
