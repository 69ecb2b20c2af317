"""The whole site: it is built without a warning, has every public name, and is opened as on a phone and a desktop."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chromium import Browser, Page, chromium
from support.documents import ROOT

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings_handlers.python")
from tools.site import check, reference
from tools.site.__main__ import build

pytestmark = [pytest.mark.subprocess_heavy, pytest.mark.xdist_group("site")]
PHONE, DESKTOP = (390, 844), (1280, 900)
#: Pages that are opened in both sizes and colours; all pages are opened as a phone.
LOOKED_AT = ("index.html", "gallery.html", "api/acl.html", "pool.html", "design-package.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site that the command makes."""
    folder = tmp_path_factory.mktemp("site") / "out"
    done = subprocess.run([sys.executable, "-m", "tools.site", str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def host(site: Path) -> Iterator[str]:
    """Yield the address of a server with the site."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        """A handler that logs nothing."""

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield one browser process for all tests."""
    path = chromium()
    if path is None:
        pytest.skip("wants a Chromium")
    opened = Browser(path)
    yield opened
    opened.close()


def go(page: Page, url: str) -> None:
    """Open a page and wait until its script has run."""
    page.call("Page.navigate", url=url)
    page.wait(f"location.href == {url!r} && document.readyState == 'complete'")
    page.settle()


def scrolls(page: Page) -> bool:
    """Return True if the page is wider than its window."""
    return bool(page.js("document.scrollingElement.scrollWidth > innerWidth"))


def test_public_names_each_have_an_entry(site: Path) -> None:
    everywhere = set().union(*(check.read(path).anchors for path in site.glob("api/*.html")))
    modules = reference.public_modules(ROOT / "acl")
    wanted = {f"{module}.{name}" for module in modules for name in reference.names(ROOT / "acl", module)} - set(modules)
    lost = {name for name in wanted if not {name, name.replace("acl.", f"{reference.PYACL}.", 1)} & everywhere}
    assert not lost and len(wanted) > 600


def test_entries_have_the_docstrings_of_compiled_modules(site: Path) -> None:
    page = (site / "api/acl.html").read_text(encoding="utf-8")
    assert "Closing or dropping it frees the memory" in page            # Pool.alloc: its stub has no docstring
    assert "Calls aclrtMalloc." in (site / "api/acl.rt.html").read_text(encoding="utf-8")


def test_mistakes_in_pages_are_named_and_stop_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    with (docs / "pool.md").open("a") as file:
        file.write("\n[a](lost.md) [b](runtime.md#lost-place)\n")
    done = build(tmp_path / "out", None, docs)
    assert done.returncode != 0
    assert "lost.md" in done.stdout and "lost-place" in done.stdout and "Aborted" in done.stdout
    (docs / "homeless.md").write_text("# Homeless\n")
    done = build(tmp_path / "out", None, docs)
    assert done.returncode != 0 and "docs/homeless.md is in no section" in done.stdout


def test_pages_fit_a_phone_and_load_nothing_from_elsewhere(site: Path, host: str, browser: Browser) -> None:
    page = browser.page(*PHONE)
    wide = []
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if not name.startswith("gallery/"):             # these pages are made by other tools, and tested elsewhere
            go(page, f"{host}/{name}")
            wide += [name] if scrolls(page) else []
    assert wide == [] and page.errors == []
    assert [url for url in page.requests if not url.startswith((host, "data:", "blob:"))] == []
    page.close()


@pytest.mark.parametrize("scheme, dark", [("light", False), ("dark", True)])
def test_pages_follow_the_colours_of_the_system(host: str, browser: Browser, scheme: str, dark: bool) -> None:
    for size in (PHONE, DESKTOP):
        page = browser.page(*size)
        page.prefer(scheme)
        for name in LOOKED_AT:
            go(page, f"{host}/{name}")
            assert not scrolls(page), name
            colour = page.js("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
            assert (sum(colour[:3]) < 384) is dark, (name, colour)
        assert page.errors == []
        page.close()


def test_search_finds_a_page_and_a_name(host: str, browser: Browser) -> None:
    page = browser.page(*DESKTOP)
    go(page, f"{host}/index.html")
    for words, target in (("quarantine guard bytes", "observability.html"), ("memory_ledger", "api/acl.html")):
        page.js("(() => { const field = document.querySelector('.md-search__input'); field.focus();"
                f" field.value = {words!r};"
                " field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true})); })()")
        links = "[...document.querySelectorAll('.md-search-result__link')]"
        page.wait(f"{links}.some(a => a.href.includes({target!r}))", 60)
    assert page.errors == []
    page.close()
