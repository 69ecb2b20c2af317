"""What README and docs show runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.documents import Snippet, snippets


@pytest.mark.parametrize("snippet", snippets(), ids=lambda snippet: snippet.place)
def test_snippet_runs(snippet: Snippet, tmp_path: Path) -> None:
    for package in snippet.needs:
        if find_spec(package) is None:
            pytest.skip(f"wants {package}")
    done = subprocess.run([sys.executable, "-W", "error::SyntaxWarning", "-c", snippet.code], cwd=tmp_path,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{snippet.place}:\n{done.stdout}{done.stderr}"


def test_readme_is_among_them() -> None:
    assert any(snippet.place.startswith("README.md") for snippet in snippets())
