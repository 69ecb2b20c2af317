"""Five tests of `scores.py`: a result, a failing operator, a full device, no device with room, and the host's calls."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from scores import Scorer

VECTORS = torch.arange(12, dtype=torch.float32).reshape(4, 3)
QUERY = torch.tensor([1.0, 0.0, 2.0])
EXPECTED = VECTORS @ QUERY


def test_scores_are_products() -> None:
    assert torch.equal(Scorer(VECTORS).scores(QUERY), EXPECTED)


@pytest.mark.acl_fault("aclopCompileAndExecute", nth=1)
def test_failed_operator_is_answered_from_the_host() -> None:
    assert torch.equal(Scorer(VECTORS).scores(QUERY), EXPECTED)


@pytest.mark.acl_world(devices=2, capacity=["64MiB", "1GiB"])
def test_full_device_leaves_the_documents_to_the_next() -> None:
    assert Scorer(torch.ones(1 << 25)).device == torch.device("npu:1")


@pytest.mark.acl_world(devices=1, capacity="64MiB")
def test_documents_without_room_are_refused() -> None:
    with pytest.raises(MemoryError, match="no device has 134217728 bytes"):
        Scorer(torch.ones(1 << 25))


def test_scores_copy_the_query_once(acl_sim: ModuleType) -> None:
    scorer = Scorer(VECTORS)
    acl_sim.reset_counters()
    scorer.scores(QUERY)
    assert acl_sim.counters()["aclrtMemcpy"] == 2        # the query to the device, the scores to the host
