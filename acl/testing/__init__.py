"""For users' tests: what the pytest plugin of this package gives them (docs/testing.md).

pytest finds the plugin by itself (`aclpool_pytest`).  Its options, in a configuration file or, with dashes, on
the command line:

- `acl_simulator`: `auto` (the simulator is loaded when torch_npu is imported or a test asks for it, unless CANN
  is installed), `on`, `off`.
- `acl_fresh`: what begins in a fresh world: each `test`, each `module`, or each test in a `process` of its own.
- `acl_check`: the checker's tools; its reports are failures.
- In the file only: `acl_settings`, `acl_blocking`, `acl_leaks`, `acl_suppressions`.

Its marks are `acl_world`, `acl_fault`, `acl_trace`, `acl_leaks` and `acl_check`; its fixtures are `acl_sim` (the
module `acl.sim`) and `no_pool_leaks`.

``pytest_plugins = ["acl.testing"]`` in a `conftest.py` brings the fixture `no_pool_leaks` where pytest does not look
for plugins.  This module wants pytest; nothing else of acl does.
"""

from __future__ import annotations

from acl.inside._leaks import LeakError
from aclpool_pytest import no_pool_leaks

__all__ = ["LeakError", "no_pool_leaks"]
