"""Run `python -m acl.tools.view`."""

import sys

from acl.tools.view import main

if __name__ == "__main__":
    sys.exit(main())
