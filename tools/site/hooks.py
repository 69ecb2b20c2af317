"""Hooks of mkdocs: the navigation, the pages that are made, and links to files outside docs/."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.site import reference, sections
from tools.site.sources import ROOT, Sources

__all__ = ["on_config", "on_files", "on_page_markdown"]

#: The variable that names the folder of the pictures, with gallery.md; `python -m tools.site` draws them.
PICTURES = "ACLPOOL_SITE_PICTURES"
ABOUT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md", "bench/decisions.md")


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every page into the navigation, or raise an error that names the pages without a place."""
    lost = sections.outside(Path(config.docs_dir), readme())
    if lost:
        raise PluginError("\n".join(lost))
    nav: list[Any] = ["index.md", *({name: list(pages)} for name, pages in sections.sections(readme()))]
    if os.environ.get(PICTURES):
        nav.append({"Gallery": "gallery.md"})
    api = [{name: file} for file, name, _ in reference.pages(ROOT / "acl")]
    nav.append({"API reference": ["api/index.md", *api[1:]]})
    nav.append({"Repository": [{name: f"repository/{name}"} for name in ABOUT if (ROOT / name).is_file()]})
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of docs/."""
    sources = Sources()
    made: dict[str, str] = {}
    for file in files.documentation_pages():
        made[file.src_uri] = sources.rewritten(file.content_string, file.src_uri, f"docs/{file.src_uri}")
    for name in ABOUT:
        sources.page_of(name)
    made.update(sources.pages())
    made.update({file: text for file, _, text in reference.pages(ROOT / "acl")})
    for name, text in made.items():
        if files.get_file_from_path(name) is not None:
            files.remove(files.get_file_from_path(name))       # type: ignore[arg-type]
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "site.css", abs_src_path=str(Path(__file__).with_name("site.css"))))
    pictures = os.environ.get(PICTURES)
    for path in sorted(Path(pictures).iterdir()) if pictures else ():
        name = path.name if path.suffix == ".md" else f"gallery/{path.name}"
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep listings out of the search index, where they would hide other pages."""
    source = page.file.src_uri
    if source.startswith("repository/") and source.removeprefix("repository/") not in ABOUT:
        page.meta["search"] = {"exclude": True}
    return markdown
