"""Finds `tools`, which is not installed, behind everything else; without the sources nothing here is collected."""

from __future__ import annotations

import sys

from support.documents import ROOT

collect_ignore = [] if (ROOT / "tools/site").is_dir() else ["test_site_parts.py", "test_site_built.py"]
# At the end: the sources' folder acl must not come before the installed one.
sys.path.append(str(ROOT))
