"""docs/serving.md names exactly the files, options and metrics that exist."""

import re
from pathlib import Path

from acl.serving import _page

ROOT = Path(__file__).parents[2]


def test_files_named_on_the_serving_page_exist() -> None:
    text = (ROOT / "docs/serving.md").read_text()
    for name in re.findall(r"^\| `(\w+\.\w+)` \|", text, re.M):
        assert (ROOT / "examples/serving" / name).is_file(), name
    for link in re.findall(r"\]\(\.\./([^)]+)\)", text):
        assert (ROOT / link).exists(), link


def test_page_explains_each_metric() -> None:
    text = (ROOT / "docs/serving.md").read_text()
    rows = re.findall(r"^\| (`aclpool_.*?) \|", text, re.M)
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert explained == set(_page.METRICS)
