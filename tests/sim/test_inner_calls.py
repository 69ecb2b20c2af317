"""Calls inside the simulator are not counted, traced or hit by faults; and a fork takes every lock of a file."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from support.calls import api
from support.models import SimModel
from support.requests import small_model

import acl.sim

SOURCES = Path(__file__).parents[2] / "acl/sim"


def test_no_source_calls_an_exported_function() -> None:
    exported = set(re.findall(r"\bsim_(acl\w+)\(", (SOURCES / "generated/exports.h").read_text()))
    assert len(exported) > 600
    found = []
    for path in sorted(SOURCES.glob("*/*.[ch]")):
        if path.parent.name == "generated":
            continue
        text = re.sub(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', "", path.read_text(), flags=re.DOTALL)
        found += [f"{path.name}: {name}" for name in re.findall(r"(?<!\w)(acl\w+)\(", text) if name in exported]
    assert found == []


def test_a_fork_takes_every_lock_of_a_file() -> None:
    """If a fork happens while a lock without FORK_TAKES is held, the lock stays held for ever in the child."""
    bare = []
    for path in sorted(SOURCES.glob("*/*.c")):
        text = path.read_text()
        made = re.findall(r"\bpthread_mutex_t (\w+) = PTHREAD_MUTEX_INITIALIZER", text)
        bare += [f"{path.name}: {name}" for name in made if f"FORK_TAKES({name})" not in text]
    assert bare == []


def test_model_unload_frees_its_memory_although_free_calls_of_the_program_fail(sim: ModuleType) -> None:
    api.aclInit(None)
    assert api.aclrtSetDevice(0) == 0
    before = acl.sim.physical_bytes()
    acl.sim.reset_counters()
    with acl.sim.fault("aclrtFree", every=1):
        with SimModel(small_model().to_bytes()):
            pass
    assert acl.sim.physical_bytes() == before
    assert not {"aclrtMalloc", "aclrtFree"} & {name for name, count in acl.sim.counters().items() if count}
