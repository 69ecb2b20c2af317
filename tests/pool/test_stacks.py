"""Python stacks that reports show: the user's line first, and no frames of this package."""

from __future__ import annotations

import _thread
import gc
import threading
from collections.abc import Callable
from pathlib import Path

import acl

FOLDER = str(Path(acl.__file__).parent)


def within(package: str) -> Callable[[acl.Pool], acl.Buffer]:
    """Return a function that allocates, and whose source file is in the folder `package`."""
    names: dict[str, Callable[[acl.Pool], acl.Buffer]] = {}
    exec(compile("def inner(pool):\n    return pool.alloc(64)\n", f"{package}/made.py", "exec"), names)
    return names["inner"]


def users_line(pool: acl.Pool, inner: Callable[[acl.Pool], acl.Buffer]) -> acl.Buffer:
    return inner(pool)


def test_stack_begins_with_the_users_line_and_leaves_out_the_packages() -> None:
    with acl.Pool(0) as pool, pool.track(), users_line(pool, within(FOLDER)):
        (block,) = pool.leaks().blocks
        assert block.stack[0][::2] == (__file__, "users_line")
        assert not [file for file, _, _ in block.stack if file.startswith(FOLDER + "/")]


def test_stack_keeps_frames_of_a_folder_whose_name_only_begins_like_the_packages() -> None:
    with acl.Pool(0) as pool, pool.track(), users_line(pool, within(FOLDER + "_of_a_user")):
        (block,) = pool.leaks().blocks
        assert block.stack[0] == (f"{FOLDER}_of_a_user/made.py", 2, "inner")


def test_stack_that_has_only_frames_of_the_package_keeps_these_frames() -> None:
    done, kept = threading.Event(), []
    names = {"inner": within(FOLDER), "kept": kept, "done": done}
    exec(compile("def work(pool):\n    kept.append(inner(pool))\n    done.set()\n", f"{FOLDER}/made.py", "exec"), names)
    with acl.Pool(0) as pool, pool.track():
        _thread.start_new_thread(names["work"], (pool,))        # type: ignore[arg-type]
        assert done.wait(300)
        (block,) = pool.leaks().blocks
        assert [function for _, _, function in block.stack] == ["inner", "work"]
        kept[0].close()


def test_stacks_that_the_collector_adds_meanwhile_do_not_take_a_stacks_number() -> None:
    """A callback of the garbage collector allocates, as a finalizer may, while a stack is recorded."""
    names: dict[str, Callable[[acl.Pool, int], acl.Buffer]] = {}
    code = "def deep(pool, n):\n    return deep(pool, n - 1) if n else pool.alloc(64)\n"
    exec(compile(code, "users.py", "exec"), names)
    running: list[str] = []

    def collected(phase: str, info: object) -> None:
        if phase == "stop" and not running:
            running.append(phase)
            exec(compile("pool.alloc(64).close()", "finalizer.py", "exec"), {"pool": pool})
            running.clear()

    before = gc.get_threshold()
    with acl.Pool(0) as pool, pool.track():
        gc.collect()
        gc.callbacks.append(collected)
        gc.set_threshold(1)
        try:
            kept = [names["deep"](pool, 30) for _ in range(3)]
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collected)
        assert [block.stack[0][0] for block in pool.leaks().blocks] == ["users.py"] * 3
        for buffer in kept:
            buffer.close()
