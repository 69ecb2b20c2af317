"""Objects made by `__new__` without `__init__`, and closed objects: no method crashes or hangs."""

from __future__ import annotations

import inspect

import pytest
from support.child import run_python

import acl

CLASSES = sorted(
    name for name in acl.__all__
    if name not in ("torch", "mindspore", "vllm", "ort", "metrics", "ge") and inspect.isclass(getattr(acl, name, None)))

WALK = """
    import faulthandler, gc, sys, warnings
    faulthandler.enable()
    faulthandler.dump_traceback_later(60, exit=True)
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda args: None
    import acl
    acl.Stream.default()
    kind = getattr(acl, sys.argv[1])
    try:
        thing = kind.__new__(kind)
    except Exception:
        print("end")                                # it refuses to be made so
        raise SystemExit
    skipped = {"__class__", "__new__", "__init__", "__del__", "__init_subclass__", "__subclasshook__"}
    for name in sorted(set(dir(kind)) - skipped):
        print("at", name, flush=True)
        try:
            found = getattr(thing, name)
        except Exception:
            continue
        for arguments in ((), (1,), (None,), (0, 0)) if callable(found) else ():
            try:
                found(*arguments)
            except Exception:
                pass
    print("at its end", flush=True)
    del thing, found
    gc.collect()
    print("end")
"""


@pytest.mark.subprocess_heavy
@pytest.mark.parametrize("name", CLASSES)
def test_object_whose_init_was_never_called_does_not_crash(name: str) -> None:
    done = run_python(WALK.replace("sys.argv[1]", repr(name)), timeout=120)
    assert done.stdout.split("\n")[-2:] == ["end", ""], (done.stdout[-200:], done.stderr[-2000:])
    assert done.returncode == 0, done.stderr
