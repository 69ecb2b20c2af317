"""A browser for all tests of the page, and the files that it shows; without Chromium the tests are not collected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.chromium import Browser, Page, chromium
from support.histories import Truth, make_recording, make_snapshot

from acl.tools import cli

# CI installs a browser for its lane `tests`.
collect_ignore = [] if chromium() else ["test_page.py", "test_large.py", "test_keyboard.py"]


@dataclass
class Shown:
    """A page in a tab, and the right answers about its file."""

    page: Page
    truth: Truth


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Return one browser process for all tests."""
    path = chromium()
    assert path is not None
    opened = Browser(path)
    yield opened
    opened.close()


def make_page(source: Path) -> Path:
    """Create the page of a file by the command; return its path."""
    target = source.with_suffix(".html")
    assert cli.main(["view", "-q", str(source), "-o", str(target)]) == 0
    return target


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    """Return the page of a recording of 30,000 events, and the right answers about the recording."""
    source = tmp_path_factory.mktemp("view") / "small.npz"
    truth = make_recording(source, 30_000, seed=3)
    return make_page(source), truth


@pytest.fixture(scope="session")
def snapshot_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a PyTorch memory snapshot."""
    source = tmp_path_factory.mktemp("view") / "snap.pickle"
    make_snapshot(source)
    return make_page(source)


@pytest.fixture
def shown(browser: Browser, small: tuple[Path, Truth]) -> Iterator[Shown]:
    """Open the small page in a new tab; check at the end that the page reported no error and loaded nothing else."""
    page = browser.page()
    page.prefer("light")
    page.open(small[0])
    yield Shown(page, small[1])
    page.js("1")   # when this returns, all earlier errors and requests of the page have arrived
    assert page.errors == []
    assert all(url.startswith(("file:", "blob:")) for url in page.requests), page.requests
    assert sum(url.startswith("file:") for url in page.requests) == 1
    page.close()
