"""Tag scopes: memory that is allocated while a scope is open gets the scope's tag.

An open scope is stored in two places.  Allocations by Python code read it from the context
(`contextvars`), which follows an asyncio task.  ACL's allocations read it from a list of the thread
(`TagScope`, without locks), because the callbacks are C and cannot read the context.  A coroutine's
scope is not put into the thread's list, because other tasks run on the thread before the scope
ends.  Instead `Model` and `Op` put it there during their own calls.

All functions run under the GIL, but callbacks read the thread's list without it.  If a scope ends
in another thread than the one in which it began, it is emptied and never freed, because the first
thread's list may still point to it.
"""

import sys
from contextvars import ContextVar

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, TagScope
from acl.core._lock cimport count_read, lock_step_down
from acl.core._tally cimport tag_scopes

__all__ = ["Tagging", "tag_open"]

cdef object innermost = ContextVar("acl.tag", default=None)
cdef set kept = set()           # scopes in the list of a thread: they must not be freed


cdef bint in_coroutine() except -1:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


cdef uint16_t tag_current(object pool) noexcept:
    cdef Tagging tagging = innermost.get()
    while tagging is not None and tagging.pool is not pool:
        tagging = tagging.outer
    return 0 if tagging is None else tagging.tag


def tag_open(pool):
    """True if a scope is open for the pool in this context."""
    return tag_current(pool) != 0


cdef bint tag_push(object pool, CorePool *core, TagScope *scope, uint16_t otherwise) noexcept:
    cdef uint32_t i
    scope.tag = tag_current(pool) or otherwise
    if scope.tag == 0:
        return False
    scope.pool = core
    scope.outer = tag_scopes()[0]
    tag_scopes()[0] = scope
    # The fast path of a lock's owner does not look for scopes.  So this thread gives up the
    # ownership of all locks of the pool.
    for i in range(count_read(&core.arena_count)):
        lock_step_down(&core.arenas[i].lock)
    return True


cdef void tag_pop(TagScope *scope) noexcept:
    cdef TagScope **link = tag_scopes()
    while link[0] is not NULL and link[0] is not scope:
        link = &link[0].outer
    if link[0] is not NULL:
        link[0] = scope.outer
        scope.outer = NULL
        scope.pool = NULL


cdef void stream_name(CorePool *core, aclrtStream stream, uint16_t tag, bint by_user) noexcept:
    cdef uint32_t i
    cdef Arena *arena
    for i in range(count_read(&core.arena_count)):
        arena = core.arenas[i]
        if arena.stream == stream and not arena.ending.by_device and (by_user or not arena.named):
            arena.default_tag = tag
            arena.named = by_user and tag != 0


cdef object tagging_make(object pool, CorePool *core, uint16_t tag):
    cdef Tagging tagging = Tagging.__new__(Tagging)
    tagging.pool = pool
    tagging.core = core
    tagging.tag = tag
    return tagging


cdef class Tagging:
    """The context manager of `Pool.tag`."""

    cdef TagScope scope             # its entry in the thread's list
    cdef CorePool *core
    cdef readonly object pool
    cdef Tagging outer              # the scope that encloses it in the context
    cdef object token  # resets the context variable at the end; None: the scope is not open
    cdef uint16_t tag

    def __enter__(self):
        if self.token is not None:
            raise ValueError("the scope of the tag is open already")
        if self in kept:
            raise ValueError("the scope of the tag ended in another thread than it began: make "
                             "another one")
        listed = not in_coroutine()
        if listed:
            kept.add(self)                      # before the thread's list points to the scope
        self.outer = innermost.get()
        self.token = innermost.set(self)
        if listed:
            tag_push(self.pool, self.core, &self.scope, 0)
        return self

    def __exit__(self, *error):
        token, self.token = self.token, None
        tag_pop(&self.scope)
        if self.scope.pool is NULL:
            kept.discard(self)
        self.scope.pool = NULL
        innermost.reset(token)
        self.outer = None
