"""Run `python -m acl.tools.bench`."""

import sys

from acl.tools.bench import main

if __name__ == "__main__":
    sys.exit(main())
