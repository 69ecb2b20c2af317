"""Fixtures of the adapters' tests."""

from __future__ import annotations

import sys
from typing import Any

import pytest


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Return the exceptions that went to `sys.unraisablehook`, in order."""
    told: list[BaseException] = []

    def hook(one: Any) -> None:
        told.append(one.exc_value)

    monkeypatch.setattr(sys, "unraisablehook", hook)
    return told
