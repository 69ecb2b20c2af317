/* Handles: objects that users know by address; any bit pattern can be checked.
 *
 * One range of address space is reserved once, without access. Each kind of object has a part of
 * it, which is made accessible as it fills. A part is divided into slots of one size, a power of
 * two. A slot contains a header and the object. Slots are never unmapped, so a late read of a dead
 * object gives old bytes and never a fault. The slot of a dead object is in quarantine until 1 MiB
 * of slots of its kind have died after it. With ACL_SIM_REUSE_HANDLES the slot that died last is
 * used next.
 *
 * Thread rule: any thread. handle_is takes no lock. A slot is used again only after it was
 * retired, and when no call or task holds it. What an object owns besides its slot is freed by the
 * file that defines its kind. */
#include "base/checks.h"
#include "base/fork.h"
#include "base/refusal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HEADER = 64, QUARANTINE_BYTES = 1 << 20, OPENED_AT_ONCE = 1 << 20 };
static const size_t SPAN = (size_t)1 << 30; /* address space of one kind */

/* The state in the two low bits (SLOT_STATE) of a slot's word; the bits above them count the holds, in steps of
 * SLOT_HOLD. */
enum SlotState { SLOT_HIDDEN, SLOT_LIVE, SLOT_KILLED, SLOT_RETIRED, SLOT_STATE = 3, SLOT_HOLD };

typedef struct Slot {
    _Atomic uint32_t word;
    HandleKind kind;
    struct Slot *next; /* next in the kind's quarantine */
    char pad[HEADER - sizeof(int) - sizeof(HandleKind) - sizeof(void *)];
} Slot;

_Static_assert(sizeof(Slot) == HEADER, "the object after the header is 64-byte aligned");

typedef struct Kind {
    pthread_mutex_t lock;
    unsigned shift;        /* a slot has 2^shift bytes with its header; set by the first object of the kind */
    _Atomic size_t count;  /* number of slots that were ever used: those with an index below `count` */
    _Atomic size_t live;   /* number of live objects */
    size_t opened;         /* bytes of the kind's part that are accessible */
    Slot *oldest, *newest; /* the quarantine: a queue, linked by `next` */
    size_t waiting;        /* number of slots in quarantine */
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
    void *found = mmap(NULL, SPAN * HANDLE_KINDS, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    range = found == MAP_FAILED ? NULL : found;
    if (range == NULL) {
        refusal_note("mmap", SPAN * HANDLE_KINDS);
    }
    for (size_t i = 0; i < HANDLE_KINDS; i++) {
        pthread_mutex_init(&kinds[i].lock, NULL);
    }
}

void handles_fork_begins(void)
{
    for (size_t i = 0; i < HANDLE_KINDS; i++) {
        pthread_mutex_lock(&kinds[i].lock);
    }
}

void handles_fork_ends(void)
{
    for (size_t i = 0; i < HANDLE_KINDS; i++) {
        pthread_mutex_unlock(&kinds[i].lock);
    }
}

bool handles_possible(void)
{
    return range != NULL;
}

static Slot *slot_at(HandleKind kind, size_t index)
{
    return (Slot *)(range + SPAN * (size_t)kind + (index << kinds[kind].shift));
}

static Slot *slot_of(const void *handle)
{
    return (Slot *)((uintptr_t)handle - HEADER);
}

/* Makes the first `bytes` of a kind's part accessible; the lock is held. */
static bool part_open(Kind *kind, HandleKind number, size_t bytes)
{
    if (bytes > SPAN) {
        return false;
    }
    while (kind->opened < bytes) {
        char *at = range + SPAN * (size_t)number + kind->opened;
        if (mprotect(at, OPENED_AT_ONCE, PROT_READ | PROT_WRITE) != 0) {
            refusal_note("mprotect", OPENED_AT_ONCE);
            return false;
        }
        kind->opened += OPENED_AT_ONCE;
    }
    return true;
}

/* Returns the oldest slot in quarantine if more than QUARANTINE_BYTES of slots are in quarantine,
 * else a new slot; NULL without memory. The lock is held. */
static Slot *slot_take(Kind *kind, HandleKind number)
{
    size_t kept = config.reuse_handles ? 0 : QUARANTINE_BYTES;
    if (kind->waiting << kind->shift > kept) {
        Slot *slot = kind->oldest;
        kind->oldest = slot->next;
        kind->waiting--;
        return slot;
    }
    size_t index = atomic_load_explicit(&kind->count, memory_order_relaxed);
    if (!part_open(kind, number, (index + 1) << kind->shift)) {
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
    atomic_store_explicit(&slot->word, SLOT_HIDDEN, memory_order_relaxed);
    memset(object, 0, size);
    return object;
}

static void slot_show(Slot *slot, uint32_t word)
{
    atomic_fetch_add_explicit(&kinds[slot->kind].live, 1, memory_order_relaxed);
    if (check_on(CHECK_ANY)) {
        checks.handle_made((char *)slot + HEADER, slot->kind);
    }
    atomic_store_explicit(&slot->word, word, memory_order_release);
}

void handle_show(void *handle)
{
    slot_show(slot_of(handle), SLOT_LIVE);
}

void handle_show_held(void *handle)
{
    slot_show(slot_of(handle), SLOT_LIVE + SLOT_HOLD);
}

void *handle_new(HandleKind number, size_t size)
{
    void *object = handle_prepare(number, size);
    if (object != NULL) {
        handle_show(object);
    }
    return object;
}

static bool slot_is_live(const Slot *slot)
{
    return (atomic_load_explicit(&slot->word, memory_order_acquire) & SLOT_STATE) == SLOT_LIVE;
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
    return slot_is_live(slot_of(handle));
}

/* Changes the state of a slot; false if its old state is not in the set `from` (bit s: state s). Gives the old
 * word in `before`. */
static bool slot_change(Slot *slot, unsigned from, enum SlotState to, uint32_t *before)
{
    uint32_t after;
    *before = atomic_load(&slot->word);
    do {
        if ((from >> (*before & SLOT_STATE) & 1) == 0) {
            return false;
        }
        after = (*before & ~(uint32_t)SLOT_STATE) | to;
    } while (!atomic_compare_exchange_weak(&slot->word, before, after));
    return true;
}

bool handle_kill(void *handle)
{
    Slot *slot = slot_of(handle);
    uint32_t before;
    if (!slot_change(slot, 1U << SLOT_LIVE, SLOT_KILLED, &before)) {
        return false;
    }
    atomic_fetch_sub_explicit(&kinds[slot->kind].live, 1, memory_order_relaxed);
    if (check_on(CHECK_ANY)) {
        checks.handle_gone(handle);
    }
    return true;
}

/* Puts the slot at the end of the quarantine; with ACL_SIM_REUSE_HANDLES at the beginning, so that slot_take
   takes it next. */
static void slot_keep(Slot *slot)
{
    Kind *kind = &kinds[slot->kind];
    pthread_mutex_lock(&kind->lock);
    if (kind->waiting == 0) {
        slot->next = NULL;
        kind->oldest = kind->newest = slot;
    } else if (config.reuse_handles) {
        slot->next = kind->oldest;
        kind->oldest = slot;
    } else {
        slot->next = NULL;
        kind->newest->next = slot;
        kind->newest = slot;
    }
    kind->waiting++;
    pthread_mutex_unlock(&kind->lock);
}

void handle_retire(void *handle)
{
    Slot *slot = slot_of(handle);
    uint32_t before;
    handle_kill(handle);
    if (slot_change(slot, 1U << SLOT_KILLED | 1U << SLOT_HIDDEN, SLOT_RETIRED, &before)
        && before < SLOT_HOLD) {
        slot_keep(slot);
    }
}

bool handle_follow(const void *handle, HandleKind number)
{
    if (!handle_is(handle, number)) {
        return false;
    }
    Slot *slot = slot_of(handle);
    uint32_t word = atomic_load(&slot->word);
    do {
        if ((word & SLOT_STATE) != SLOT_LIVE) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&slot->word, &word, word + SLOT_HOLD));
    return true;
}

bool handle_hold(const void *handle)
{
    Slot *slot = slot_of(handle);
    uint32_t word = atomic_load(&slot->word);
    do {
        if ((word & SLOT_STATE) != SLOT_LIVE && (word & SLOT_STATE) != SLOT_KILLED) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&slot->word, &word, word + SLOT_HOLD));
    return true;
}

bool handle_drop(const void *handle)
{
    Slot *slot = slot_of(handle);
    uint32_t left = atomic_fetch_sub(&slot->word, SLOT_HOLD) - SLOT_HOLD;
    if (left == SLOT_RETIRED) {
        slot_keep(slot);
    }
    return left == SLOT_KILLED;
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
        if (slot_is_live(slot)) {
            return (char *)slot + HEADER;
        }
    }
    return NULL;
}

void *handle_next_held(HandleKind number, const void *after)
{
    void *next = handle_next(number, after);
    while (next != NULL && !handle_hold(next)) {
        next = handle_next(number, next);
    }
    if (after != NULL) {
        handle_drop(after);
    }
    return next;
}

size_t handle_live(HandleKind kind)
{
    return atomic_load_explicit(&kinds[kind].live, memory_order_relaxed);
}

const char *handle_kind_name(HandleKind kind)
{
    return kind_names[kind];
}
