"""Each strong promise of README, docs and docstrings, and the test that checks it.

Each sentence that contains a word of STRONG must be in CLAIMS with its test, or in PLAIN if it promises nothing.
These tests fail if a sentence is in neither list, or if the test of a promise no longer exists.  For docstrings of
public names, DOCSTRINGS has one entry for the whole docstring.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from support.calls import api, out
from support.child import run_python
from support.models import Call, SimModel
from support.requests import small_model

import acl
from acl.tools.onnx_writer import Builder

ROOT = Path(__file__).resolve().parents[2]
STRONG = re.compile(r"\b(never|always|any thread|no waits?)\b", re.IGNORECASE)
#: Pages that describe decisions or define words; they promise nothing.
HISTORY = ("design", "glossary")
#: Generated modules; their docstrings quote CANN's documentation.
PYACL = {"mdl", "op", "prof", "rt", "util"}

#: The promises: page, the words around the strong word, the test's file, the test's name.
CLAIMS = [
    ("README.md", "a thread that Python has never seen", "core/test_threads.py",
     "test_threads_not_started_by_python_can_allocate_and_free"),
    ("concurrency.md", "dropped by the collector, in any thread", "pool/test_pinned.py",
     "test_pinned_arrays_outlive_their_pool_and_are_freed_in_any_thread"),
    ("concurrency.md", "Dropping never waits", "runtime/test_work.py",
     "test_garbage_collection_in_a_callback_waits_for_no_copy"),
    ("concurrency.md", "it may raise, it never corrupts", "runtime/test_work.py",
     "test_closing_memory_under_a_copy_gives_it_back_after_the_copy"),
    ("concurrency.md", "callbacks may come from any thread", "core/test_threads.py",
     "test_blocks_can_be_freed_by_threads_that_did_not_allocate_them"),
    ("concurrency.md", "closed or dropped in any thread", "pool/test_contexts.py",
     "test_pool_dropped_in_a_thread_without_a_context_returns_all_memory"),
    ("c-api.md", "Any thread may call, whether Python knows it or not", "core/test_threads.py",
     "test_threads_not_started_by_python_can_allocate_and_free"),
    ("concurrency.md", "never held while a stream is waited for", "package/test_claims.py",
     "test_thread_that_waits_for_the_stream_of_a_model_does_not_lock_the_model"),
    ("concurrency.md", "as of any host memory; never freed", "package/test_claims.py",
     "test_a_forked_child_reads_pinned_memory_and_frees_nothing"),
    ("models.md", "never asks the allocator registered for a stream", "package/test_claims.py",
     "test_model_with_gears_allocates_nothing_from_the_pool_of_its_stream"),
    ("moving.md", "it never raises a limit that you gave the pool", "adapters/test_door.py",
     "test_a_fraction_of_the_device_never_raises_the_owners_limit"),
    ("numpy.md", "while a copy still uses it costs no wait", "pool/test_pinned.py",
     "test_dropping_a_pinned_buffer_does_not_wait_for_its_copy"),
    ("numpy.md", "are freed from any thread", "pool/test_pinned.py",
     "test_pinned_arrays_outlive_their_pool_and_are_freed_in_any_thread"),
    ("observability.md", "per stream; no waits", "pool/test_guard.py",
     "test_sampling_guard_finds_errors_without_waiting"),
    ("onnxruntime.md", "Any thread may run a session", "adapters/test_ort.py",
     "test_threads_allocate_and_free_for_each_other"),
    ("recording.md", "what it always counts", "inside/test_ledger.py",
     "test_ledger_rows_add_up_while_another_thread_allocates"),
    ("recording.md", "Always counted", "inside/test_ledger.py",
     "test_ledger_rows_add_up_while_another_thread_allocates"),
    ("recording.md", "exact, always", "inside/test_ledger.py",
     "test_ledger_rows_add_up_while_another_thread_allocates"),
    ("recording.md", "never waits for a recording, nor for its reader", "inside/test_record.py",
     "test_recording_read_while_its_ring_is_overwritten_has_only_valid_events"),
    ("runtime.md", "`query` never waits", "runtime/test_stream.py", "test_stream_query_is_true_only_when_work_is_done"),
    ("runtime.md", "it never overtakes what was queued there", "runtime/test_copy.py",
     "test_a_synchronous_copy_waits_for_copies_still_queued"),
    ("runtime.md", "never takes memory from under a copy", "runtime/test_work.py",
     "test_closing_memory_under_a_copy_gives_it_back_after_the_copy"),
    ("runtime.md", "never an `OutOfMemoryError`", "runtime/test_work.py",
     "test_synchronize_on_a_lost_device_raises_a_device_lost_error"),
    ("torch.md", "never raises it", "adapters/frameworks/test_torch_door.py",
     "test_a_fraction_never_widens_the_owners_limit"),
    ("troubleshooting.md", "`import aclpool as acl` is always ours", "pyacl/test_coexistence.py",
     "test_modules_imported_as_acl_and_as_aclpool_are_one_object"),
]

#: Sentences with a strong word that promise nothing: page, and the words around the strong word.
PLAIN = [
    ("README.md", "which it was never tuned on"),
    ("benchmarking.md", "A row that never settled"),
    ("benchmarking.md", "is a thread that Python has never seen"),
    ("concurrency.md", "calls no driver function, never waits"),      # a rule for developers of the core
    ("concurrency.md", "they never call the engine"),
    ("concurrency.md", "Where a callback never ends"),
    ("races.md", "everything that any thread of the host has seen"),
    ("troubleshooting.md", "only with the pool, never without"),
    ("view.md", "those never freed"),
]


#: Public names whose docstrings have a strong word, and the tests of the promise; empty if nothing is promised.
DOCSTRINGS: dict[str, tuple[str, ...]] = {
    "Buffer.from_address": ("runtime/test_buffer.py::test_borrowed_memory_is_not_freed",),
    "Capture": ("core/test_order.py::test_a_captured_block_is_never_moved_or_trimmed",
                "core/test_order.py::test_a_capture_has_memory_of_its_own"),
    "Event.query": ("package/test_claims.py::test_a_query_of_a_busy_stream_returns_while_it_is_busy",),
    "Model.close": ("execution/test_model.py::test_model_can_be_closed_in_a_thread_without_a_context",),
    "Model.run_async": ("execution/test_model.py::test_runs_on_a_blocked_stream_are_queued_without_a_wait",),
    "Pool": ("core/test_views.py::test_free_pages_get_an_alias_without_a_wait",
             "core/test_views.py::test_reactivated_mapping_needs_no_driver_call",
             "pool/test_guard.py::test_sampling_guard_finds_errors_without_waiting"),
    "Stream.query": ("package/test_claims.py::test_a_query_of_a_busy_stream_returns_while_it_is_busy",),
    "sim": ("sim/test_controls.py::test_faults_from_many_threads_are_counted_once",),
    "sim.configure": (),
}


def public_docstrings() -> Iterator[tuple[str, str]]:
    """Yield names and docstrings of all that the package exports, except pyACL's, which quote CANN."""
    for name in acl.__all__:
        thing = getattr(acl, name, None)
        if name in PYACL or thing is None:
            continue
        yield name, thing.__doc__ or ""
        inner = thing.__all__ if name == "sim" else vars(thing) if isinstance(thing, type) else ()
        for member in inner:
            text = getattr(getattr(thing, member), "__doc__", None)
            if not member.startswith("_") and isinstance(text, str):
                yield f"{name}.{member}", text


def sentences(page: Path) -> str:
    """Return the page's text in one line, without its programs and its link targets."""
    text = re.sub(r"```.*?```|(?<=\])\(#[^)]*\)", "", page.read_text(), flags=re.DOTALL)
    return re.sub(r"\s+", " ", text)


PAGES = {page.name: sentences(page) for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
         if not page.name.startswith(HISTORY)}


@pytest.mark.parametrize("page", PAGES)
def test_each_strong_sentence_has_a_test_or_promises_nothing(page: str) -> None:
    text = PAGES[page]
    known = [words for name, words, *_ in [*CLAIMS, *PLAIN] if name == page]
    missing = [words for words in known if words not in text]
    assert not missing, f"{page} does not say any more: {missing}"
    for words in known:
        text = text.replace(words, "")
    left = [text[max(0, found.start() - 60):found.end() + 60] for found in STRONG.finditer(text)]
    assert not left, f"{page}: name a test in CLAIMS, or weaken the page: {left}"


@pytest.mark.parametrize(("file", "test"), sorted({(file, test) for _, _, file, test in CLAIMS}))
def test_test_named_for_a_promise_exists(file: str, test: str) -> None:
    assert re.search(rf"^ *def {test}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE)


def test_each_public_docstring_with_a_strong_word_has_tests_or_promises_nothing() -> None:
    strong = [name for name, text in public_docstrings() if STRONG.search(text)]
    assert "Stream.query" in strong
    new = sorted(set(strong) - set(DOCSTRINGS))
    assert not new, f"name tests in DOCSTRINGS, or weaken the docstrings: {new}"
    for test in chain.from_iterable(DOCSTRINGS.values()):
        test_test_named_for_a_promise_exists(*test.split("::"))


# ---- the tests of promises that are tested in this file ----


def test_a_query_of_a_busy_stream_returns_while_it_is_busy(stream: acl.Stream) -> None:
    opened, event = threading.Event(), acl.Event()
    stream.launch(opened.wait, 60)
    event.record(stream)
    assert not stream.query() and not event.query() and not opened.is_set()
    opened.set()
    stream.synchronize()
    assert stream.query() and event.query()


def started(model: acl.Model, x: np.ndarray, stream: acl.Stream) -> threading.Thread:
    """Start and return a thread that runs the model on a stream."""
    thread = threading.Thread(target=model, args=(x,), kwargs={"stream": stream})
    thread.start()
    return thread


def run_beside(model: acl.Model, x: np.ndarray, free: acl.Stream, waiter: threading.Thread,
               opened: threading.Event) -> bool:
    """Run the model on a free stream while `waiter` waits for `opened`; return True if this run had to wait."""
    other = started(model, x, free)
    other.join(60)
    stuck = other.is_alive()
    opened.set()
    waiter.join()
    other.join()
    return stuck


def test_first_run_that_waits_for_its_stream_does_not_lock_the_model() -> None:
    x, opened = np.ones((6, 8), np.float32), threading.Event()
    with acl.Model(small_model().to_bytes()) as model, acl.Stream() as held, acl.Stream() as free:
        held.launch(opened.wait, 120)
        waiter = started(model, x, held)
        assert not run_beside(model, x, free, waiter, opened), "waited for a first run on a stream that is held up"


def test_thread_that_waits_for_the_stream_of_a_model_does_not_lock_the_model() -> None:
    x, opened, waiting = np.ones((6, 8), np.float32), threading.Event(), threading.Event()
    with acl.Model(small_model().to_bytes()) as model, acl.Stream() as held, acl.Stream() as free:
        model(x, stream=held)
        model(x, stream=free)

        def hold() -> None:
            waiting.set()
            opened.wait(120)

        held.launch(hold)
        waiter = started(model, x, held)
        assert waiting.wait(60)
        assert not run_beside(model, x, free, waiter, opened), "waited for a run that a callback holds up"


def test_a_forked_child_reads_pinned_memory_and_frees_nothing() -> None:
    done = run_python("""
        import os, acl, numpy
        with acl.numpy_pool():
            array = numpy.full(1000, 7, "uint8")
        child = os.fork()
        if child == 0:
            same = bool((array == 7).all())
            array[:] = 1
            del array
            os._exit(0 if same else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), bool((array == 7).all()))
        again = numpy.full(1000, 3, "uint8")
        print(bool((array == 7).all()))
    """)
    assert (done.stdout, done.returncode) == ("0 True\nTrue\n", 0), done.stderr


def test_model_with_gears_allocates_nothing_from_the_pool_of_its_stream() -> None:
    b = Builder()
    b.add("Exp", b.add("Relu", b.input("x", "float32", [None, 4])), outputs=["y"])
    b.output("y")
    index, x, served = out(ctypes.c_size_t), np.ones((2, 4), np.float32), []
    for metadata in ({}, {"dynamic_batch_size": "1,2,4"}):
        with acl.Pool(0) as pool, acl.Stream(0) as stream, SimModel(b.to_bytes(metadata)) as loaded:
            pool.register(stream)
            call = Call([x, np.zeros(1, np.int64)] if metadata else [x], 1, [64])
            if metadata:
                desc = api.aclmdlCreateDesc()
                assert api.aclmdlGetDesc(desc, loaded.id) == 0
                assert api.aclmdlGetInputIndexByName(desc, b"ascend_mbatch_shape_data", ctypes.byref(index)) == 0
                assert api.aclmdlSetDynamicBatchSize(loaded.id, call.input, index.value, 2) == 0
                assert api.aclmdlDestroyDesc(desc) == 0
            assert api.aclmdlExecuteAsync(loaded.id, call.input, call.output, stream.handle) == 0
            stream.synchronize()
            np.testing.assert_allclose(call.result(0).ravel()[:8], np.full(8, np.e), rtol=1e-6)
            served.append(pool.stats().reserved_peak > 0)
            call.close()
            pool.unregister(stream)
    assert served == [True, False], "the first model shows that it would be seen"
