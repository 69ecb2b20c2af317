"""docs/models.md names exactly the operators that the built-in engine has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sim.ops.operator_cases import RECIPES
from support.calls import api
from support.models import SimModel
from support.torch_operators import EXPRESSIONS

from acl import sim
from acl.tools.onnx_writer import Builder

ROOT = Path(__file__).resolve().parents[3]

pytestmark = pytest.mark.usefixtures("device")


def listed(mark: str) -> list[str]:
    text = (ROOT / "docs/models.md").read_text()
    found = re.search(f"<!-- {mark} -->(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None
    return re.findall(r"\w+", found[1])


def rows() -> set[str]:
    """Return the ONNX names in the operator library's tables; entries of macros for pools and windows are included."""
    text = "".join(path.read_text() for path in sorted((ROOT / "acl/sim").glob("*/op_*.c")))
    return set(re.findall(r'"(\w+)",\s*(?:OP_ONNX|OP_BOTH)', text)) | set(re.findall(r'(?:POOL|WINDOW)\("(\w+)"', text))


def fused() -> set[str]:
    """Return the names of domain com.microsoft in the operator library's tables."""
    text = "".join(path.read_text() for path in sorted((ROOT / "acl/sim").glob("*/op_*.c")))
    return set(re.findall(r'"(\w+)",\s*(?:OP_ONNX \| )?OP_ORT', text)) | set(re.findall(r'GELU\("(\w+)"', text))


def test_documented_operators_are_those_of_the_library() -> None:
    assert sorted(rows() | {"Constant"}) == listed("operators")
    assert sorted(fused()) == listed("fused")


def test_each_documented_operator_is_compared_with_onnx_runtime() -> None:
    """differential.py compares all operators except those below, which are tested elsewhere for the reason given."""
    others = {
        "Constant": "no kernel",
        "STFT": "test_fourier.py: ONNX Runtime has other defaults",
        "Scatter": "test_old_operator_sets.py: ScatterElements before operator set 11",
        "Upsample": "test_old_operator_sets.py: Resize before operator set 10",
        "SimplifiedLayerNormalization": "test_fused.py: of no operator set",
    }
    assert set(listed("operators")) - set(RECIPES) == set(others)


@pytest.mark.parametrize("mark", ["operators", "control"])
def test_each_documented_operator_is_known_to_the_engine(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node may be refused for other reasons, but not because the operator is unknown."""
    monkeypatch.setenv("ACL_SIM_ENGINE", "builtin")
    for kind in listed(mark):
        b = Builder(21)
        b.add(kind, b.input("x", "float32", [2, 2]), outputs=["y"])
        b.output("y")
        try:
            with SimModel(b.to_bytes()):
                pass
        except AssertionError as error:
            assert "is not one of the built-in engine" not in str(error).split("\n")[0]


def names(page: str, mark: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text()
    found = re.search(f"<!-- {mark} -->(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None
    return [name.split(" ")[0] for name in found[1].replace("\n", " ").strip().split(", ")]


def test_operator_list_function_returns_the_operators_that_the_page_lists() -> None:
    answer = sim.operators()
    assert answer["single"] == names("operators.md", "single")
    assert answer["torch"] == names("operators.md", "torch")
    assert answer["onnx"] == sorted(listed("operators") + listed("control"))
    assert answer["com.microsoft"] == listed("fused")


def test_tried_operators_of_torch_are_all_in_one_of_the_lists() -> None:
    assert sorted(names("operators.md", "torch") + names("operators.md", "torch-missing")) == sorted(EXPRESSIONS)


def test_single_operators_of_the_list_are_found_and_others_are_refused(device: None) -> None:
    for name in [*sim.operators()["single"], "Conv2D"]:
        status = api.aclopExecuteV2(name.encode(), 0, None, None, 0, None, None, None, None)
        message = (api.aclGetRecentErrMsg() or b"").decode()
        assert status != 0 and ("no operator" in message) is (name == "Conv2D"), message
