"""Code in README and docs that is run as it stands.

A Python block is run if the line above it is `<!-- run -->`. In the comment may also stand what the
block wants: `needs torch_npu` (packages without which it is skipped), `with model` (a file
`model.onnx` in the working folder, and a list `requests` of batches for it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^<!-- run(?P<wants>[^>]*) -->\n```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
MODEL = '''
import numpy as np
from pathlib import Path
from acl.tools import onnx_writer
_b = onnx_writer.Builder()
_x = _b.input("x", "float32", [None, 8])
_b.output(_b.add("Softmax", _b.add("MatMul", _x, _b.constant(np.eye(8, dtype=np.float32))), axis=-1))
Path("model.onnx").write_bytes(_b.to_bytes())
requests = [np.random.default_rng(n).random((n, 8), np.float32) for n in (1, 5, 3, 8)]
'''


@dataclass(frozen=True)
class Snippet:
    """A block of a document: where it is, what it wants, and its code."""

    place: str
    needs: tuple[str, ...]
    code: str


def snippets() -> list[Snippet]:
    """All blocks that are marked to be run."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            wants = dict(re.findall(r"(needs|with) ([\w, ]+?)(?= needs| with|$)", match["wants"]))
            line = text.count("\n", 0, match.start("code")) + 1
            found.append(Snippet(f"{path.name}:{line}", tuple(re.findall(r"\w+", wants.get("needs", ""))),
                                 (MODEL if "with" in wants else "") + match["code"]))
    return found
