"""Our `acl`, whatever else is called `acl`: `import aclpool as acl`."""

import acl as _acl
from acl import *  # noqa: F403


def __getattr__(name: str) -> object:
    return getattr(_acl, name)
