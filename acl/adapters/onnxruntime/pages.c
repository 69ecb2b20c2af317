/* pages.c: see pages.h. */
#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum {
    UNIT = 65536, /* bytes of the smallest mapping: the core's smallest page */
    NOT_SUPPORTED = 207000,
    NO_MEMORY = 207001,
    WRONG = 107000,
};

static const off_t FILE_BYTES = (off_t)1 << 60;

typedef struct Frame {
    off_t offset; /* bytes from the start of the file; never used again after a free: the file has a hole there */
    size_t size;
} Frame;

typedef struct Reservation {
    struct Reservation *next;
    char *base;
    size_t size;
    uint32_t *units; /* for each unit, the bytes of the mapping that begins there; 0: no mapping begins there */
} Reservation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the variables below */
static Reservation *reservations;
static int file = -1;
static atomic_llong file_end;
static atomic_size_t physical;

/* --- fork --- */

static int fork_pipe[2] = {-1, -1}; /* the child closes its end when its copies of the pages are complete */

/* Replaces mapped pages by a private copy, or by inaccessible pages if there is no memory for a copy. */
static void pages_copy(char *address, size_t size)
{
    void *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy != MAP_FAILED) {
        memcpy(copy, address, size);
        if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, address) != MAP_FAILED) {
            return;
        }
    }
    (void)mmap(address, size, PROT_NONE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
    if (reservations != NULL && pipe2(fork_pipe, O_CLOEXEC) != 0) {
        fork_pipe[0] = fork_pipe[1] = -1; /* without a pipe the parent does not wait */
    }
}

/* Called in a forked child: replaces the shared pages of the file by private copies, so that the parent does not see
   the child's writes.  A child never maps or frees pages of a pool (`_ort.pyx`). */
static void fork_child(void)
{
    for (Reservation *one = reservations; one != NULL; one = one->next) {
        for (size_t unit = 0; unit < one->size / UNIT;) {
            size_t count = one->units[unit];
            if (count != 0) {
                pages_copy(one->base + unit * UNIT, count * UNIT);
            }
            unit += count != 0 ? count : 1;
        }
    }
    reservations = NULL;
    (void)close(fork_pipe[0]);
    (void)close(fork_pipe[1]);
    pthread_mutex_unlock(&lock);
}

/* Called in the parent after a fork: waits until the child has its copies, so that they do not get later writes. */
static void fork_parent(void)
{
    if (fork_pipe[0] >= 0) {
        char nothing;
        (void)close(fork_pipe[1]);
        while (read(fork_pipe[0], &nothing, 1) < 0 && errno == EINTR) {
        }
        (void)close(fork_pipe[0]);
        fork_pipe[0] = fork_pipe[1] = -1;
    }
    pthread_mutex_unlock(&lock);
}

static bool file_ready(void)
{
    static bool watched; /* the fork handlers are installed */
    pthread_mutex_lock(&lock);
    if (!watched) {
        watched = pthread_atfork(fork_prepare, fork_parent, fork_child) == 0;
    }
    if (file < 0 && watched) {
        file = memfd_create("aclpool host pages", MFD_CLOEXEC);
        if (file >= 0 && ftruncate(file, FILE_BYTES) != 0) {
            (void)close(file);
            file = -1;
        }
    }
    bool ready = file >= 0;
    pthread_mutex_unlock(&lock);
    return ready;
}

/* --- addresses --- */

static void *space_take(size_t size)
{
    void *base = mmap(
        NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Reserves addresses at a multiple of the huge page size, so that the kernel can use huge pages. */
static char *space_aligned(size_t size)
{
    const size_t huge = 2 << 20;
    char *base = space_take(size + huge);
    if (base == NULL) {
        return NULL;
    }
    char *aligned = base + (huge - (uintptr_t)base % huge) % huge;
    if (aligned > base) {
        (void)munmap(base, (size_t)(aligned - base));
    }
    char *end = base + size + huge;
    if (end > aligned + size) {
        (void)munmap(aligned + size, (size_t)(end - (aligned + size)));
    }
    return aligned;
}

static size_t units_bytes(size_t size)
{
    return (size / UNIT + 1) * sizeof(uint32_t);
}

aclError host_reserve(
    void **address, size_t size, size_t alignment, void *expect, uint64_t flags)
{
    (void)alignment;
    (void)expect;
    (void)flags;
    Reservation *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return NO_MEMORY;
    }
    made->size = size;
    made->base = space_aligned(size);
    made->units = mmap(NULL, units_bytes(size), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made->base == NULL || made->units == MAP_FAILED) {
        if (made->base != NULL) {
            (void)munmap(made->base, size);
        }
        if (made->units != MAP_FAILED) {
            (void)munmap(made->units, units_bytes(size));
        }
        free(made);
        return NO_MEMORY;
    }
    pthread_mutex_lock(&lock);
    made->next = reservations;
    reservations = made;
    pthread_mutex_unlock(&lock);
    *address = made->base;
    return ACL_SUCCESS;
}

aclError host_release(void *address)
{
    pthread_mutex_lock(&lock);
    Reservation **link = &reservations;
    while (*link != NULL && (*link)->base != address) {
        link = &(*link)->next;
    }
    Reservation *found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        return WRONG;
    }
    (void)munmap(found->base, found->size);
    (void)munmap(found->units, units_bytes(found->size));
    free(found);
    return ACL_SUCCESS;
}

/* Returns the place where the size of a mapping at this address is stored; NULL if no reservation has the address. */
static uint32_t *units_at(const char *address, size_t size)
{
    uint32_t *found = NULL;
    pthread_mutex_lock(&lock);
    for (Reservation *one = reservations; one != NULL && found == NULL; one = one->next) {
        if (address >= one->base && address < one->base + one->size
            && size <= (size_t)(one->base + one->size - address)) {
            found = &one->units[(size_t)(address - one->base) / UNIT];
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* --- frames --- */

aclError host_physical(
    aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop, uint64_t flags)
{
    (void)prop;
    (void)flags;
    Frame *frame = file_ready() ? malloc(sizeof *frame) : NULL;
    if (frame == NULL) {
        return NO_MEMORY;
    }
    frame->size = size;
    frame->offset = (off_t)atomic_fetch_add(&file_end, (long long)size);
    (void)atomic_fetch_add(&physical, size);
    *handle = (aclrtDrvMemHandle)frame;
    return ACL_SUCCESS;
}

aclError host_free_physical(aclrtDrvMemHandle handle)
{
    Frame *frame = (Frame *)handle;
    if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, frame->offset,
            (off_t)frame->size)
        != 0) {
        return NO_MEMORY;
    }
    (void)atomic_fetch_sub(&physical, frame->size);
    free(frame);
    return ACL_SUCCESS;
}

aclError host_map(
    void *address, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags)
{
    (void)flags;
    const Frame *frame = (const Frame *)handle;
    uint32_t *units = units_at(address, size);
    if (units == NULL || *units != 0 || offset > frame->size || size > frame->size - offset) {
        return WRONG;
    }
    /* MAP_POPULATE: the kernel allocates the memory now, because the core uses a page as soon as it is mapped. */
    if (mmap(address, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file,
            frame->offset + (off_t)offset)
        == MAP_FAILED) {
        return NO_MEMORY;
    }
    *units = (uint32_t)(size / UNIT);
    return ACL_SUCCESS;
}

aclError host_unmap(void *address)
{
    uint32_t *units = units_at(address, 0);
    if (units == NULL || *units == 0) {
        return WRONG;
    }
    if (mmap(address, (size_t)*units * UNIT, PROT_NONE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0)
        == MAP_FAILED) {
        return NO_MEMORY;
    }
    *units = 0;
    return ACL_SUCCESS;
}

size_t host_physical_bytes(void)
{
    return atomic_load(&physical);
}

/* --- the other functions of a driver --- */

aclError host_malloc(void **address, size_t size, aclrtMemMallocPolicy policy)
{
    (void)address;
    (void)size;
    (void)policy;
    return NOT_SUPPORTED;
}

aclError host_free(void *address)
{
    (void)address;
    return NOT_SUPPORTED;
}

aclError host_sync(aclrtStream stream, int32_t timeout_ms)
{
    (void)stream;
    (void)timeout_ms;
    return ACL_SUCCESS;
}

aclError host_sync_device(int32_t timeout_ms)
{
    (void)timeout_ms;
    return ACL_SUCCESS;
}

aclError host_query(aclrtStream stream, aclrtStreamStatus *status)
{
    (void)stream;
    *status = ACL_STREAM_STATUS_COMPLETE;
    return ACL_SUCCESS;
}

aclError host_mem_info(aclrtMemAttr attr, size_t *room, size_t *total)
{
    (void)attr;
    struct sysinfo info;
    if (sysinfo(&info) != 0) {
        return NOT_SUPPORTED;
    }
    *room = (size_t)(info.freeram + info.bufferram) * info.mem_unit;
    *total = (size_t)info.totalram * info.mem_unit;
    return ACL_SUCCESS;
}

aclError host_capture_info(aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *graph)
{
    (void)stream;
    *status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    *graph = NULL;
    return ACL_SUCCESS;
}

aclError host_event_create(aclrtEvent *event, uint32_t flag)
{
    (void)event;
    (void)flag;
    return NOT_SUPPORTED;
}

aclError host_event_destroy(aclrtEvent event)
{
    (void)event;
    return NOT_SUPPORTED;
}

aclError host_event_record(aclrtEvent event, aclrtStream stream)
{
    (void)event;
    (void)stream;
    return NOT_SUPPORTED;
}

aclError host_event_query(aclrtEvent event, aclrtEventRecordedStatus *status)
{
    (void)event;
    (void)status;
    return NOT_SUPPORTED;
}
