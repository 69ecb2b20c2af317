"""The rules for new commit subjects and test names, in `.ci/new_names.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    path = Path(__file__).parents[2] / ".ci/new_names.py"
    spec = importlib.util.spec_from_file_location("new_names", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("subject", [
    "core: read arena.barred under the arena lock", "sim: move the files into rooms", "CI: run the lane lint first",
    "acl/tools: drop the PNG raster", 'Revert "sim: move the files"',
])
def test_subject_with_area_and_verb_is_accepted(rules: ModuleType, subject: str) -> None:
    assert rules.subject_fault(subject) == ""


@pytest.mark.parametrize(("subject", "fault"), [
    ("mend a thing", "expected `area: verb object`"), ("core:", "expected `area"),
    ("Simulator: the two losses that models keep", "not 'the'"), ("Lock: who meets somebody", "not 'who'"),
    ("pool: free blocks; count them", "joins two changes"), ("pool: " + "very " * 14, "at most 72"),
])
def test_subject_without_the_form_is_refused(rules: ModuleType, subject: str, fault: str) -> None:
    assert fault in rules.subject_fault(subject)


def test_name_of_three_words_is_accepted(rules: ModuleType) -> None:
    assert rules.name_fault("test_buffer_closed_twice_is_freed_once") == ""


@pytest.mark.parametrize(("name", "fault"), [
    ("test_it_may_be_asked_again", "begins with 'it'"), ("test_the_pool_is_whole", "begins with 'the'"),
    ("test_sizes", "fewer than three words"),
])
def test_name_without_the_form_is_refused(rules: ModuleType, name: str, fault: str) -> None:
    assert fault in rules.name_fault(name)
