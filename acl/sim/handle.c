/* Handles: objects that users hold by address, checkable for any bit pattern.
 *
 * One range of address space is reserved once; each kind owns a part of it, cut into slots of one
 * size, a power of two.  A slot is a header and the object.  Slots are never unmapped, so a late
 * reader of a dead object sees old bytes, never a fault.  A dead slot waits in a queue until
 * others of its kind, of a MiB together, died after it.
 *
 * Thread rule: any thread.  handle_is takes no lock.  Not done here: counting references; whoever
 * kills an object keeps its slot until the last user is done (handle_kill, later handle_retire). */
#include "core.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER = 64, QUARANTINE_BYTES = 1 << 20 };
static const size_t SPAN = (size_t)1 << 30; /* address space of one kind */

enum SlotState { SLOT_HIDDEN, SLOT_LIVE, SLOT_KILLED, SLOT_RETIRED };

typedef struct Slot {
    _Atomic int state;
    HandleKind kind;
    struct Slot *next; /* in the kind's quarantine */
    char pad[HEADER - sizeof(int) - sizeof(HandleKind) - sizeof(void *)];
} Slot;

_Static_assert(sizeof(Slot) == HEADER, "the object after the header is 64-byte aligned");

typedef struct Kind {
    pthread_mutex_t lock;
    unsigned shift;        /* a slot, header included, has 2^shift bytes; fixed by the first one */
    _Atomic size_t count;  /* slots ever given out; those below it have a header */
    _Atomic size_t live;
    Slot *oldest, *newest; /* quarantine, oldest first */
    size_t waiting;
} Kind;

static Kind kinds[HANDLE_KINDS];
static char *range;

static const char *const kind_names[HANDLE_KINDS] = {
    [HANDLE_CONTEXT] = "context",
    [HANDLE_STREAM] = "stream",
    [HANDLE_EVENT] = "event",
    [HANDLE_NOTIFY] = "notify",
    [HANDLE_CNT_NOTIFY] = "cnt_notify",
    [HANDLE_LABEL] = "label",
    [HANDLE_LABEL_LIST] = "label_list",
    [HANDLE_MODEL_RI] = "model_ri",
    [HANDLE_MODEL_RI_TASK] = "model_ri_task",
    [HANDLE_TASK_GROUP] = "task_group",
    [HANDLE_COND] = "cond",
    [HANDLE_STREAM_CONFIG] = "stream_config",
    [HANDLE_PHYSICAL] = "physical",
    [HANDLE_MEM_POOL] = "mem_pool",
    [HANDLE_ALLOCATOR_DESC] = "allocator_desc",
    [HANDLE_DATA_BUFFER] = "data_buffer",
    [HANDLE_UTILIZATION] = "utilization",
    [HANDLE_GROUP_INFO] = "group_info",
    [HANDLE_BINARY_DATA] = "binary_data",
    [HANDLE_BINARY] = "binary",
    [HANDLE_FUNCTION] = "function",
    [HANDLE_ARGS] = "args",
    [HANDLE_PARAM] = "param",
    [HANDLE_TENSOR_DESC] = "tensor_desc",
    [HANDLE_DATASET] = "dataset",
    [HANDLE_MODEL_DESC] = "model_desc",
    [HANDLE_MODEL] = "model",
    [HANDLE_MODEL_CONFIG] = "model_config",
    [HANDLE_EXEC_CONFIG] = "exec_config",
    [HANDLE_AIPP] = "aipp",
    [HANDLE_OP_ATTR] = "op_attr",
    [HANDLE_OP] = "op",
    [HANDLE_KERNEL_DESC] = "kernel_desc",
    [HANDLE_BUNDLE] = "bundle",
    [HANDLE_PROFILER] = "profiler",
    [HANDLE_SUBSCRIPTION] = "subscription",
    [HANDLE_TDT] = "tdt",
    [HANDLE_MBUF] = "mbuf",
    [HANDLE_OTHER] = "other",
};

__attribute__((constructor(101))) static void range_reserve(void)
{
    void *found = mmap(NULL, SPAN * HANDLE_KINDS, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    range = found == MAP_FAILED ? NULL : found;
    for (size_t i = 0; i < HANDLE_KINDS; i++) {
        pthread_mutex_init(&kinds[i].lock, NULL);
    }
}

static Slot *slot_at(HandleKind kind, size_t index)
{
    return (Slot *)(range + SPAN * (size_t)kind + (index << kinds[kind].shift));
}

static Slot *slot_of(const void *handle)
{
    return (Slot *)((uintptr_t)handle - HEADER);
}

/* The oldest quarantined slot once enough wait behind it, else a new one; the lock is held. */
static Slot *slot_take(Kind *kind, HandleKind number)
{
    if (kind->waiting << kind->shift > QUARANTINE_BYTES) {
        Slot *slot = kind->oldest;
        kind->oldest = slot->next;
        kind->waiting--;
        return slot;
    }
    size_t index = atomic_load_explicit(&kind->count, memory_order_relaxed);
    if ((index + 1) << kind->shift > SPAN) {
        return NULL;
    }
    Slot *slot = slot_at(number, index);
    slot->kind = number;
    atomic_store_explicit(&kind->count, index + 1, memory_order_release);
    return slot;
}

void *handle_prepare(HandleKind number, size_t size)
{
    Kind *kind = &kinds[number];
    if (range == NULL) {
        return NULL;
    }
    unsigned shift = 64 - (unsigned)__builtin_clzll(HEADER + size - 1);
    pthread_mutex_lock(&kind->lock);
    if (kind->shift == 0) {
        kind->shift = shift;
    }
    SIM_ASSERT(kind->shift == shift);
    Slot *slot = slot_take(kind, number);
    pthread_mutex_unlock(&kind->lock);
    if (slot == NULL) {
        return NULL;
    }
    void *object = (char *)slot + HEADER;
    atomic_store_explicit(&slot->state, SLOT_HIDDEN, memory_order_relaxed);
    memset(object, 0, size);
    return object;
}

void handle_show(void *handle)
{
    Slot *slot = slot_of(handle);
    atomic_fetch_add_explicit(&kinds[slot->kind].live, 1, memory_order_relaxed);
    atomic_store_explicit(&slot->state, SLOT_LIVE, memory_order_release);
}

void *handle_new(HandleKind number, size_t size)
{
    void *object = handle_prepare(number, size);
    if (object != NULL) {
        handle_show(object);
    }
    return object;
}

bool handle_is(const void *handle, HandleKind number)
{
    const Kind *kind = &kinds[number];
    uintptr_t start = (uintptr_t)range + SPAN * (size_t)number;
    uintptr_t offset = (uintptr_t)handle - HEADER - start;
    size_t count = atomic_load_explicit(&kind->count, memory_order_acquire);
    size_t index = offset >> kind->shift;
    if (offset >= SPAN || index >= count || index << kind->shift != offset) {
        return false;
    }
    return atomic_load_explicit(&slot_of(handle)->state, memory_order_acquire) == SLOT_LIVE;
}

bool handle_kill(void *handle)
{
    Slot *slot = slot_of(handle);
    int expected = SLOT_LIVE;
    if (!atomic_compare_exchange_strong(&slot->state, &expected, SLOT_KILLED)) {
        return false;
    }
    atomic_fetch_sub_explicit(&kinds[slot->kind].live, 1, memory_order_relaxed);
    return true;
}

void handle_retire(void *handle)
{
    Slot *slot = slot_of(handle);
    int killed = SLOT_KILLED, hidden = SLOT_HIDDEN;
    handle_kill(handle);
    if (!atomic_compare_exchange_strong(&slot->state, &killed, SLOT_RETIRED)
        && !atomic_compare_exchange_strong(&slot->state, &hidden, SLOT_RETIRED)) {
        return;
    }
    Kind *kind = &kinds[slot->kind];
    pthread_mutex_lock(&kind->lock);
    slot->next = NULL;
    if (kind->waiting++ == 0) {
        kind->oldest = slot;
    } else {
        kind->newest->next = slot;
    }
    kind->newest = slot;
    pthread_mutex_unlock(&kind->lock);
}

void *handle_next(HandleKind number, const void *after)
{
    const Kind *kind = &kinds[number];
    size_t count = atomic_load_explicit(&kind->count, memory_order_acquire);
    if (count == 0) {
        return NULL;
    }
    size_t index = 0;
    if (after != NULL) {
        uintptr_t start = (uintptr_t)range + SPAN * (size_t)number;
        index = (((uintptr_t)after - HEADER - start) >> kind->shift) + 1;
    }
    for (; index < count; index++) {
        Slot *slot = slot_at(number, index);
        if (atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_LIVE) {
            return (char *)slot + HEADER;
        }
    }
    return NULL;
}

size_t handle_live(HandleKind kind)
{
    return atomic_load_explicit(&kinds[kind].live, memory_order_relaxed);
}

const char *handle_kind_name(HandleKind kind)
{
    return kind_names[kind];
}
