"""The page /memory of the example service in a browser: it shows the pool's numbers and updates them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from app import application
from support.chromium import Browser, Page, chromium
from support.http_server import served
from task import TextTask

import acl
from acl.serving import Engine, Options

MIB = 1 << 20
TASK = TextTask(layers=1)


@pytest.fixture
def service() -> Iterator[tuple[Engine, str]]:
    """Yield an engine, and the HTTP address of its server."""
    engine = Engine(Options(limit="64MiB"))
    engine.load("text", TASK)
    with served(application(engine, TASK)) as port:
        yield engine, f"http://127.0.0.1:{port}"
    engine.close()


@pytest.fixture
def page() -> Iterator[Page]:
    path = chromium()
    assert path is not None
    browser = Browser(path)
    yield browser.page()
    browser.close()


def test_memory_page_shows_and_follows_the_pool(service: tuple[Engine, str], page: Page, tmp_path: Path) -> None:
    engine, address = service
    assert engine.pool is not None
    page.call("Page.navigate", url=address + "/memory")
    page.wait("document.title === 'Memory' && document.querySelectorAll('#rows tr').length > 0", 60)
    assert "0 answered" in page.js("document.getElementById('state').textContent")
    engine.submit(TASK.item("hello")).result(300)
    with engine.pool.alloc(10 * MIB, tag="<b>mine</b>"):
        page.wait("document.getElementById('state').textContent.startsWith('1 answered')", 60)
        text = page.wait(
            "[...document.querySelectorAll('#rows tr')].map(r => r.innerText).find(t => t.includes('mine'))", 60)
        assert "<b>mine</b>" in text and "10.0 MiB" in text     # the name is shown as text, not as HTML
        said = page.js("document.getElementById('state').textContent")
        assert "held of at most 64.0 MiB" in said
        page.wait("document.getElementById('reserved').getAttribute('points').trim().split(' ').length > 2", 60)
    axes = page.js("[...document.querySelectorAll('.axis')].map(a => a.innerText.split('\\n').join('|')).join(';')")
    assert axes == "64.0 MiB|32.0 MiB|0 B;2 minutes ago|1 minute ago|now"
    assert page.js("document.getElementById('of').textContent") == "of 64.0 MiB, the pool's limit"
    assert page.js("document.getElementById('limit').getAttribute('d')") == "M0 4H600"
    page.js("document.getElementById('scale').click()")
    page.wait("document.getElementById('limit').getAttribute('d') === ''", 60)
    page.wait("![...document.querySelectorAll('#rows tr')].some(r => r.innerText.includes('mine'))", 60)
    page.screenshot(tmp_path / "memory.png")
    rows = acl.memory_ledger(0).rows
    assert {row.name for row in rows if row.owner == "pool"} == {"serving"}
    assert page.errors == []
    assert all(url.startswith((address + "/memory", "data:")) for url in page.requests), page.requests
