"""Run `python -m acl.tools.replay`."""

import sys

from acl.tools.replay import main

if __name__ == "__main__":
    sys.exit(main())
