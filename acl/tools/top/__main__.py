"""Run `python -m acl.tools.top`."""

import sys

from acl.tools.top import main

if __name__ == "__main__":
    sys.exit(main())
