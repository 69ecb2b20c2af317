"""Scopes of tags, for `cimport`: see `_tags.pyx`."""

from libc.stdint cimport uint16_t

from acl.core.types cimport Pool as CorePool, TagScope
from acl.bind.generated._libacl cimport aclrtStream

# The tag of the innermost scope that is open for a pool in this context; 0 without one.
cdef uint16_t tag_current(object pool) noexcept

# Gives ACL's allocations in this thread that tag, or `otherwise` without one, until `tag_pop`.
# Returns false and does nothing if there is neither.
cdef bint tag_push(object pool, CorePool *core, TagScope *scope, uint16_t otherwise) noexcept
cdef void tag_pop(TagScope *scope) noexcept

# Whose a stream's blocks without a tag are, for the reports; a model's name does not replace the
# user's.
cdef void stream_name(CorePool *core, aclrtStream stream, uint16_t tag, bint by_user) noexcept

cdef object tagging_make(object pool, CorePool *core, uint16_t tag)
