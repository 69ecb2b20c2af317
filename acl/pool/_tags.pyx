"""Scopes of tags: whose memory it is that is taken while they are open.

A scope is known in two places.  The context (`contextvars`) has it for what Python code takes; it
follows an asyncio task.  The thread has it for what ACL takes through the callbacks, which are C
and know no context (`TagScope`, a list without locks); a coroutine's scope is not put there, since
other tasks run on the thread before it ends: `Model` and `Op` put it there for their own calls.

Under the GIL, but for the callbacks' reading.  A scope that ends in another thread than it began
is emptied there and kept for ever, as the first thread's list may still lead to it.
"""

import sys
from contextvars import ContextVar

from libc.stdint cimport uint32_t

from acl.core.types cimport Arena, TagScope
from acl.core._lock cimport count_read, lock_step_down
from acl.core._tally cimport tag_scopes

__all__ = ["Tagging", "tag_open"]

cdef object innermost = ContextVar("acl.tag", default=None)
cdef set kept = set()           # what a thread's list leads to


cdef bint in_coroutine() except -1:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


cdef uint16_t tag_current(object pool) noexcept:
    cdef Tagging tagging = innermost.get()
    while tagging is not None and tagging.pool is not pool:
        tagging = tagging.outer
    return 0 if tagging is None else tagging.tag


def tag_open(pool):
    """Whether a scope is open for the pool here."""
    return tag_current(pool) != 0


cdef bint tag_push(object pool, CorePool *core, TagScope *scope, uint16_t otherwise) noexcept:
    cdef uint32_t i
    scope.tag = tag_current(pool) or otherwise
    if scope.tag == 0:
        return False
    scope.pool = core
    scope.outer = tag_scopes()[0]
    tag_scopes()[0] = scope
    # An owner's way asks for no scope, so the thread owns nothing while one is open.
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
    """What `Pool.tag` returns."""

    cdef TagScope scope             # in the thread's list
    cdef CorePool *core
    cdef readonly object pool
    cdef Tagging outer              # in the context
    cdef object token               # to leave the context; None while the scope is not open
    cdef uint16_t tag

    def __enter__(self):
        if self.token is not None:
            raise ValueError("the scope of the tag is open already")
        self.outer = innermost.get()
        self.token = innermost.set(self)
        if not in_coroutine():
            tag_push(self.pool, self.core, &self.scope, 0)
            kept.add(self)
        return self

    def __exit__(self, *error):
        token, self.token = self.token, None
        tag_pop(&self.scope)
        if self.scope.pool is NULL:
            kept.discard(self)
        self.scope.pool = NULL
        innermost.reset(token)
        self.outer = None
