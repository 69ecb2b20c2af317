"""Scopes of tags, for `cimport`: see `_tags.pyx`."""

from libc.stdint cimport uint16_t

from acl.core.types cimport Pool as CorePool, TagScope
from acl.bind.generated._libacl cimport aclrtStream

# Return the tag of the innermost scope that is open for a pool in this context; 0 if none is.
cdef uint16_t tag_current(object pool) noexcept

# Until `tag_pop`, ACL's allocations in this thread get the tag of the open scope, or `otherwise` if
# no scope is open.  If both are 0, do nothing and return False.
cdef bint tag_push(object pool, CorePool *core, TagScope *scope, uint16_t otherwise) noexcept
cdef void tag_pop(TagScope *scope) noexcept

# Set the tag under which reports count a stream's blocks without a tag.  A model's name (`by_user`
# is False) does not replace a name that the user gave.
cdef void stream_name(CorePool *core, aclrtStream stream, uint16_t tag, bint by_user) noexcept

cdef object tagging_make(object pool, CorePool *core, uint16_t tag)
