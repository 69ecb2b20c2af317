"""Fixtures of the tests of the command `aclpool`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from acl.tools.top import sample


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A new folder with a short path for this test's sockets; answers may take up to 60 s."""
    with tempfile.TemporaryDirectory(dir="/tmp" if os.access("/tmp", os.W_OK) else None) as chosen:
        monkeypatch.setenv("ACL_POOL_TOP_DIR", chosen)
        monkeypatch.setattr(sample, "ASK_SECONDS", 60)
        yield Path(chosen)
