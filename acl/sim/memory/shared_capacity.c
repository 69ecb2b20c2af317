/* Capacity shared with other processes: see shared_capacity.h. */
#include "memory/shared_capacity.h"
#include "base/fork.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/file.h>
#include <unistd.h>

enum { SLOTS = 128 };

typedef struct Slot {
    _Atomic int32_t pid; /* the process that uses the slot; 0: free */
    _Atomic uint64_t start;
    _Atomic size_t bytes[DEVICE_MAX];
} Slot;

static Slot *slots; /* NULL: this process shares no capacity */
static Slot *own;

static bool slot_lives(const Slot *slot)
{
    return process_lives((Process){atomic_load(&slot->pid), atomic_load(&slot->start)});
}

/* Takes a free slot, or the slot of a process that has died; NULL if all are in use. The caller has
 * locked the file, so only one process searches at a time. */
static Slot *slot_claim(void)
{
    Process self = process_self();
    for (int i = 0; i < SLOTS; i++) {
        Slot *slot = &slots[i];
        if (!slot_lives(slot)) {
            for (int device = 0; device < DEVICE_MAX; device++) {
                atomic_store(&slot->bytes[device], 0);
            }
            atomic_store(&slot->start, self.start);
            atomic_store(&slot->pid, self.pid);
            return slot;
        }
    }
    return NULL;
}

static void slots_from_environment(void);

static bool slots_open(const char *path)
{
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) {
        return false;
    }
    void *base = MAP_FAILED;
    errno = posix_fallocate(file, 0, SLOTS * (off_t)sizeof(Slot)); /* else a full disk would raise SIGBUS later */
    if (errno == 0) {
        base = mmap(NULL, SLOTS * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (base != MAP_FAILED && flock(file, LOCK_EX) == 0) {
        slots = base;
        own = slot_claim();
        flock(file, LOCK_UN); /* necessary, because close does not end the lock while the file is mapped */
    }
    close(file);
    return own != NULL;
}

/* Takes a slot for a forked child. The bytes in a slot count until the process of the slot ends. */
void neighbours_forked(void)
{
    own = NULL;
    if (slots != NULL) {
        munmap(slots, SLOTS * sizeof(Slot));
        slots = NULL;
        slots_from_environment();
    }
}

__attribute__((constructor(104))) static void slots_from_environment(void)
{
    const char *path = getenv("ACL_SIM_SHARED");
    if (path != NULL && *path != '\0' && !slots_open(path)) {
        fprintf(stderr, "acl.sim: ACL_SIM_SHARED: %s: %s\n", path,
                slots == NULL ? strerror(errno) : "no slot is free");
        slots = NULL;
    }
}

__attribute__((destructor)) static void slot_leave(void)
{
    int32_t self = (int32_t)getpid();
    if (own != NULL) { /* in a forked child `own` may be the parent's slot, which the compare then leaves unchanged */
        atomic_compare_exchange_strong(&own->pid, &self, 0);
    }
}

/* Returns the bytes that other processes hold on a card. */
static size_t card_bytes(int32_t card)
{
    size_t sum = 0;
    for (int i = 0; i < SLOTS; i++) {
        size_t bytes = atomic_load(&slots[i].bytes[card]);
        if (bytes != 0 && &slots[i] != own && slot_lives(&slots[i])) {
            sum += bytes;
        }
    }
    return sum;
}

size_t neighbours_bytes(int32_t device)
{
    return slots == NULL || device >= DEVICE_MAX ? 0 : card_bytes(config.card[device]);
}

bool neighbours_take(int32_t device, size_t bytes, size_t limit)
{
    if (slots == NULL || device >= DEVICE_MAX) {
        return true;
    }
    int32_t card = config.card[device];
    size_t mine = atomic_fetch_add(&own->bytes[card], bytes) + bytes;
    size_t others = card_bytes(card);
    if (others <= limit && mine <= limit - others) {
        return true;
    }
    atomic_fetch_sub(&own->bytes[card], bytes);
    return false;
}

void neighbours_give(int32_t device, size_t bytes)
{
    if (slots != NULL && device < DEVICE_MAX) {
        atomic_fetch_sub(&own->bytes[config.card[device]], bytes);
    }
}
