"""Model.instances: the weights take device memory once, and the last instance frees it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import acl
from acl.tools.demo.models import encoder
from acl.tools.onnx_writer import Builder

LAYERS = 12                     # gives about 2.4 MB of weights: more than the 2 MiB of one page
INPUTS = np.ones((2, 5, 64), np.float32), np.ones((2, 5), np.float32)


@pytest.fixture(scope="session")
def content() -> bytes:
    return encoder(LAYERS).to_bytes()


@pytest.mark.parametrize("from_file", [False, True])
def test_four_more_instances_take_no_memory_for_weights(
    content: bytes, tmp_path: Path, from_file: bool, sim: Any, no_leaks: None
) -> None:
    source: Any = content
    if from_file:
        source = tmp_path / "model.onnx"
        source.write_bytes(content)
    before = sim.physical_bytes()
    with acl.Model(source) as alone:
        single = sim.physical_bytes() - before
        (right,) = alone(*INPUTS)
    made = acl.Model.instances(source, 5, name="five")
    assert single > 2 << 20 and sim.physical_bytes() - before == single
    assert [one.name for one in made] == ["five"] * 5
    for one in made:
        np.testing.assert_array_equal(one(*INPUTS)[0], right)
    for one in made[:4]:
        one.close()
    np.testing.assert_array_equal(made[4](*INPUTS)[0], right)
    made[4].close()
    assert sim.physical_bytes() == before


def test_instances_dropped_at_work_keep_the_weights_until_the_runs_are_done(content: bytes, sim: Any) -> None:
    acl.Device(0).use()
    before = sim.physical_bytes(), sim.live_handles().get("model", 0)
    with acl.Stream(0) as stream:
        made = acl.Model.instances(content, 2)
        (right,) = made[0](*INPUTS, stream=stream)
        runs = [one.run_async(list(INPUTS), stream) for one in made * 3]
        del made
        gc.collect()
        for run in runs:
            np.testing.assert_array_equal(run.result()[0], right)
        del runs, run
    acl.Device(0).synchronize()                 # finishes the end of the dropped models and arrays
    assert (sim.physical_bytes(), sim.live_handles().get("model", 0)) == before


def test_instances_of_a_model_without_weights_run(no_leaks: None) -> None:
    graph = Builder()
    graph.add("Relu", graph.input("x", "float32", ["n"]), outputs=["y"])
    graph.output("y", "float32", ["n"])
    made = acl.Model.instances(graph.to_bytes(), 2)
    for one in made:
        assert one(np.float32([-1, 2]))[0].tolist() == [0, 2]
        one.close()


@pytest.mark.parametrize(
    "function", ["aclmdlQuerySizeFromMem", "aclmdlLoadFromMemWithMem", "aclmdlGetDesc", "aclrtMalloc"])
def test_failed_load_of_one_instance_unloads_all_instances(
    content: bytes, function: str, sim: Any, no_leaks: None
) -> None:
    nth = 1 if function in ("aclmdlQuerySizeFromMem", "aclrtMalloc") else 2
    with sim.fault(function, nth=nth) as fault, pytest.raises(acl.AclError):
        acl.Model.instances(content, 3)
    assert fault.hits == 1


def test_instances_of_an_object_that_is_not_a_model_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        acl.Model.instances(content, 0)
    with pytest.raises(TypeError, match="source must be a path or a model's content, not int"):
        acl.Model.instances(5, 2)  # type: ignore[arg-type]
    with pytest.raises(acl.AclError, match="/nowhere"):
        acl.Model.instances("/nowhere", 2)


@pytest.mark.parametrize(("count", "text"), [
    (2.5, "count must be an int, not float"), ("3", "count must be an int, not str"),
    (None, "count must be an int"), (True, "count must be an int, not bool"),
])
def test_number_of_instances_that_is_not_an_int_is_refused_by_name(content: bytes, count: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        acl.Model.instances(content, count)


@pytest.mark.parametrize("function", ["aclmdlLoadFromFileWithMem", "aclmdlLoadFromMemWithMem"])
def test_instances_that_do_not_load_name_the_function_that_failed(
    content: bytes, tmp_path: Path, function: str, sim: Any, no_leaks: None
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with sim.fault(function, nth=2, code=107002), pytest.raises(acl.AclError) as raised:
        acl.Model.instances(path if "File" in function else content, 2)
    assert raised.value.function == function
