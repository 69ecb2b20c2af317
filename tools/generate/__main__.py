"""`python -m tools.generate [--check]`: write the generated files, or say which are stale."""

from __future__ import annotations

import argparse
import sys

from . import api, exports, headers, libacl, options, pyacl

MAKERS = [headers.outputs, exports.outputs, libacl.outputs, pyacl.outputs, options.outputs]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    check = parser.parse_args().check
    table = api.load()
    stale = 0
    for make in MAKERS:
        for name, text in make(table).items():
            path = api.ROOT / name
            if path.exists() and path.read_text() == text:
                continue
            stale += 1
            print(f"{'stale' if check else 'wrote'} {name}")
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
