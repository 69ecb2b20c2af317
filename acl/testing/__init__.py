"""For users' tests: the functions behind the pytest plugin of this package (docs/testing.md).

pytest finds the plugin (`aclpool_pytest`) without a setting.  It has these options, in a configuration file or, with
dashes, on the command line:

- `acl_simulator`: `auto` (the simulator is loaded when torch_npu is imported or a test asks for it, unless CANN
  is installed), `on`, `off`.
- `acl_fresh`: the simulator is reset before each `test` or each `module`; or each test runs in its own `process`.
- `acl_check`: the checker's tools that run; a test with a report of the checker fails.
- In the configuration file only: `acl_settings`, `acl_blocking`, `acl_leaks`, `acl_suppressions`.

Its marks are `acl_world`, `acl_fault`, `acl_trace`, `acl_leaks` and `acl_check`; its fixtures are `acl_sim` (the
module `acl.sim`) and `no_pool_leaks`.

If pytest does not load plugins by itself, ``pytest_plugins = ["acl.testing"]`` in a `conftest.py` defines the fixture
`no_pool_leaks`.  No other module of acl needs pytest.
"""

from __future__ import annotations

from acl.inside._leaks import LeakError
from aclpool_pytest import no_pool_leaks

__all__ = ["LeakError", "no_pool_leaks"]
