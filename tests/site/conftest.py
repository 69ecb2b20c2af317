"""Makes the folder `tools` importable, which is not installed.  If it does not exist, no test here is collected."""

from __future__ import annotations

import sys

from support.documents import ROOT

collect_ignore = [] if (ROOT / "tools/site").is_dir() else ["test_site_parts.py", "test_site_built.py"]
# At the end of the path, because the installed package acl must be found before the sources.
sys.path.append(str(ROOT))
