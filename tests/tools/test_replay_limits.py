"""`aclpool replay --suggest-limit`: the limit is enough, is a number of pages, and is little above the load's peak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.small_traces import random_trace

from acl.tools import cli
from acl.tools.replay import limits
from acl.tools.replay.trace import Trace, save_trace

MIB = 1 << 20


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Trace, str]:
    """Return a trace of two streams, and its file."""
    trace = random_trace(7, 500, streams=2)
    save_trace(tmp_path / "load.npz", trace)
    return trace, str(tmp_path / "load.npz")


def suggested(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main(["replay", *arguments, "--suggest-limit", "--runs", "1", "--json", "-"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["suggested_limit"]
    return found


@pytest.mark.parametrize("granule", [2 * MIB, 8 * MIB])
def test_suggested_limit_serves_the_load_and_its_live_peak_alone_does_not(
        saved: tuple[Trace, str], granule: int, capsys: pytest.CaptureFixture[str]) -> None:
    trace, path = saved
    found = suggested(capsys, path, "--granule", str(granule))
    assert found["live_peak"] == trace.joint_live_peak() < trace.live_peak()
    assert found["limit"] == found["live_peak"] + found["waste"]
    assert found["limit"] % granule == 0 and found["limit"] >= found["live_peak"]
    options = {"granule": granule}
    assert limits.failures_with(trace, 1, options | {"limit": found["limit"]}) == 0
    below = found["live_peak"] // granule * granule
    assert limits.failures_with(trace, 1, options | {"limit": below}) > 0


def test_limit_that_does_not_suffice_is_raised(
        saved: tuple[Trace, str], monkeypatch: pytest.MonkeyPatch) -> None:
    trace, _ = saved
    tried: list[int] = []

    def failures(_: Trace, passes: int, options: dict[str, Any]) -> int:
        tried.append(options["limit"])
        return len(tried) < 3

    monkeypatch.setattr(limits, "failures_with", failures)
    numbers = {"failures": 0, "reserved_peak": 99 * MIB, "live_peak": 90 * MIB}
    found = limits.suggested_limit(trace, numbers, 2 * MIB)
    assert tried == [100 * MIB, 104 * MIB, 108 * MIB]
    assert found == {"limit": 108 * MIB, "live_peak": 90 * MIB, "waste": 18 * MIB}
    monkeypatch.setattr(limits, "failures_with", lambda *_: 1)
    assert limits.suggested_limit(trace, numbers, 2 * MIB) is None


def test_load_that_the_device_cannot_hold_gets_no_limit(
        tmp_path: Path, saved: tuple[Trace, str], monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    huge = [(0, n, 20 << 30, 0) for n in range(2)] + [(1, n, 20 << 30, 0) for n in range(2)]
    (tmp_path / "huge.json").write_text(json.dumps(
        [dict(zip(("op", "id", "size", "stream"), row, strict=True)) for row in huge]))
    assert cli.main(["replay", str(tmp_path / "huge.json"), "--suggest-limit", "--runs", "1"]) == 1
    assert "no limit can be suggested: the simulated device is too small" in capsys.readouterr().out


def test_replay_text_names_the_suggested_limit_in_bytes(
    saved: tuple[Trace, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, path = saved
    found = suggested(capsys, path)
    assert cli.main(["replay", path, "--suggest-limit", "--runs", "1"]) == 0
    assert f"({found['limit']} bytes): its live peak over all streams is " in capsys.readouterr().out
    assert cli.main(["replay", path, "--runs", "1"]) == 0
    assert "bytes): its live peak" not in capsys.readouterr().out


def test_limit_option_together_with_suggest_limit_is_refused(
    saved: tuple[Trace, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["replay", saved[1], "--suggest-limit", "--limit", "1GiB"]) == 2
    assert "--suggest-limit: expected no --limit beside it, got '1GiB'" in capsys.readouterr().err
