"""Note which streams have ended, for tables that only a thread with the GIL may change.

C code may make and destroy streams that Python code has used by their handles.  ACL reports each
end to a C function, which must not take the GIL: another thread may hold it and wait for the
stream.  So Python watches each stream that it enters into a table.  An end moves the watch to a
list, and the next call into the package drops the table's entry (`runtime/_ended`).

The list needs no limit.  Python empties the list before it makes a new watch.  So the list never
has more entries than there were watched streams when the last watch was made.
"""

from libc.stdlib cimport free, malloc

from acl.bind.generated cimport _libacl
from acl.bind.generated._libacl cimport ACL_RT_STREAM_STATE_DESTROY_PRE, aclrtStreamState
from acl.core._lock cimport (
    SpinLock, count_publish, count_read, pointer_publish, pointer_read, spin_enter, spin_leave,
)

cdef extern from "<pthread.h>" nogil:
    int pthread_atfork(void (*prepare)() noexcept nogil, void (*parent)() noexcept nogil,
                       void (*child)() noexcept nogil)

cdef enum:
    BUCKETS = 1024

cdef struct Watch:
    aclrtStream stream
    uint64_t number             # number of the watch, from 1; unique in the process
    bint serves                 # the end of the stream unregisters its allocator from ACL
    Watch *next                 # in its bucket, or in the list of streams that have ended

cdef SpinLock ends_lock         # guards the variables below; its holder takes no other lock
cdef Watch *watches[BUCKETS]    # hash table of BUCKETS lists; the key is the stream's handle
cdef void *ended = NULL         # Watch pointer: the list of streams that have ended, newest first
cdef uint64_t last_number = 0
cdef bint asked = False         # ACL was asked to report ends
cdef uint32_t refused = 0       # 1: ACL cannot report ends; read without the lock


cdef void on_fork_child() noexcept nogil:
    ends_lock.word = 0          # another thread of the parent may have held it


cdef inline Watch **bucket_of(aclrtStream stream) noexcept nogil:
    return &watches[((<size_t> stream >> 4) * <size_t> 0x9E3779B97F4A7C15 >> 40) % BUCKETS]


cdef inline Watch *watch_find(aclrtStream stream) noexcept nogil:
    cdef Watch *watch = bucket_of(stream)[0]
    while watch != NULL and watch.stream != stream:
        watch = watch.next
    return watch


cdef void on_stream_state(aclrtStream stream, aclrtStreamState state, void *args) noexcept nogil:
    if state == ACL_RT_STREAM_STATE_DESTROY_PRE:
        if on_end != NULL:
            on_end(stream)
        end_note(stream)


cdef void end_note(aclrtStream stream) noexcept nogil:
    """Move the stream's watch, if there is one, to the list of streams that have ended."""
    cdef Watch *watch
    cdef Watch **link
    spin_enter(&ends_lock)
    link = bucket_of(stream)
    while link[0] != NULL and link[0].stream != stream:
        link = &link[0].next
    watch = link[0]
    cdef bint serves = watch != NULL and watch.serves
    if watch != NULL:
        link[0] = watch.next
        watch.next = <Watch *> ended
        pointer_publish(&ended, watch)
    spin_leave(&ends_lock)
    if serves:                  # ACL would use the allocator for a new stream with the same handle
        _libacl.aclrtAllocatorUnregister(stream)  # status ignored: the stream ends anyway


cdef void ends_listen() noexcept nogil:
    global asked
    cdef bint first
    spin_enter(&ends_lock)
    first = not asked
    asked = True
    spin_leave(&ends_lock)
    if not first:
        return
    pthread_atfork(NULL, NULL, on_fork_child)
    if (not _libacl.libacl_has(b"aclrtRegStreamStateCallback")
            or _libacl.aclrtRegStreamStateCallback(b"aclpool", on_stream_state, NULL) != 0):
        count_publish(&refused, 1)


cdef uint64_t ends_watch(aclrtStream stream) noexcept nogil:
    global last_number
    cdef uint64_t number
    cdef Watch *watch
    cdef Watch *fresh
    ends_listen()
    if stream == NULL or count_read(&refused):
        return 0
    fresh = <Watch *> malloc(sizeof(Watch))
    spin_enter(&ends_lock)
    watch = watch_find(stream)
    if watch == NULL and fresh != NULL:
        last_number += 1
        fresh.stream = stream
        fresh.number = last_number
        fresh.serves = False
        fresh.next = bucket_of(stream)[0]
        bucket_of(stream)[0] = watch = fresh
        fresh = NULL
    number = 0 if watch == NULL else watch.number
    spin_leave(&ends_lock)
    free(fresh)
    return number


cdef bint ends_alive(aclrtStream stream, uint64_t number) noexcept nogil:
    cdef Watch *watch
    cdef bint alive
    if number == 0:
        return True
    spin_enter(&ends_lock)
    watch = watch_find(stream)
    alive = watch != NULL and watch.number == number
    spin_leave(&ends_lock)
    return alive


cdef void ends_serve(aclrtStream stream, bint serves) noexcept nogil:
    cdef Watch *watch
    spin_enter(&ends_lock)
    watch = watch_find(stream)
    if watch != NULL:
        watch.serves = serves
    spin_leave(&ends_lock)


cdef bint ends_noted() noexcept nogil:
    return pointer_read(&ended) != NULL


cdef uint32_t ends_take(aclrtStream *found, uint32_t most) noexcept nogil:
    cdef uint32_t count = 0
    cdef Watch *watch
    cdef Watch *taken = NULL
    spin_enter(&ends_lock)
    while ended != NULL and count < most:
        watch = <Watch *> ended
        pointer_publish(&ended, watch.next)
        found[count] = watch.stream
        count += 1
        watch.next = taken
        taken = watch
    spin_leave(&ends_lock)
    while taken != NULL:
        watch = taken
        taken = watch.next
        free(watch)
    return count
