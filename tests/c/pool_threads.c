/* A library: threads unknown to Python, on allocators given by the values that ACL gets for them.
 *
 * Blocks are stored in boxes, and each box belongs to an allocator.  A worker chooses boxes at random.  If a box is
 * empty, it gets a new block of its allocator; if it is full, its block is freed.  So blocks are freed by threads that
 * did not allocate them.  With `touch`, blocks are written by plain stores: ThreadSanitizer then detects two
 * threads that own one block, and each word of the pool that its locks do not order. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

enum { MOST_WORKERS = 8, BOXES = 64 };

typedef struct Door {
    void *state;
    void *(*alloc)(void *state, size_t size);
    void (*free)(void *state, void *block);
    void *(*address)(void *block);
} Door;

typedef struct Box {
    void *block; /* atomic: moved in and out by exchanges */
    size_t size; /* not atomic: read by the thread that took the block out */
    char pad[112];
} Box;

typedef struct Team Team;

typedef struct Worker {
    pthread_t thread;
    Team *team;
    uint64_t random;
    uint32_t number;
    uint64_t refused; /* allocations that returned NULL */
    uint64_t spoiled; /* blocks that another thread had written to */
} Worker;

struct Team {
    const Door *doors;
    uint32_t door_count;
    uint32_t workers;
    uint64_t turns;
    size_t most;     /* largest bytes of a block */
    bool touch;
    bool takes_any;  /* uses any allocator; else only the one with its own number */
    int (*prepare)(void *context);
    void *context;
    uint32_t running;
    Worker worker[MOST_WORKERS];
    Box box[BOXES];
};

static uint64_t random_next(uint64_t *state)
{
    uint64_t word = *state;
    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    return *state = word;
}

/* Returns a random size whose logarithm is uniform: as many small sizes as large ones. */
static size_t size_choose(Worker *worker)
{
    unsigned most = 63u - (unsigned)__builtin_clzll(worker->team->most);
    unsigned bits = 5 + (unsigned)(random_next(&worker->random) % (most - 5));
    return (size_t)1 << bits | (random_next(&worker->random) & (((size_t)1 << bits) - 1));
}

static void mark(char *address, size_t size, uint64_t value)
{
    *(uint64_t *)(void *)address = value;
    *(uint64_t *)(void *)(address + ((size - 8) & ~(size_t)7)) = value;
}

static bool marked(const char *address, size_t size, uint64_t value)
{
    return *(const uint64_t *)(const void *)address == value &&
           *(const uint64_t *)(const void *)(address + ((size - 8) & ~(size_t)7)) == value;
}

static void box_fill(Worker *worker, uint32_t index, const Door *door)
{
    Team *team = worker->team;
    Box *box = &team->box[index];
    size_t size = size_choose(worker);
    char *block = door->alloc(door->state, size);
    if (block == NULL) {
        worker->refused++;
        return;
    }
    char *address = door->address(block);
    if (team->touch) {
        mark(address, size, (uint64_t)(uintptr_t)block);
    }
    void *none = NULL;
    /* The box holds its own address while this thread writes the size, so that no other thread uses it. */
    if (!__atomic_compare_exchange_n(&box->block, &none, box, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        door->free(door->state, block);
        return;
    }
    box->size = size;
    __atomic_store_n(&box->block, block, __ATOMIC_RELEASE);
}

static void box_empty(Worker *worker, uint32_t index, const Door *door)
{
    Team *team = worker->team;
    Box *box = &team->box[index];
    void *block = __atomic_load_n(&box->block, __ATOMIC_RELAXED);
    if (block == NULL || block == box ||
        !__atomic_compare_exchange_n(&box->block, &block, box, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        return;
    }
    size_t size = box->size;
    __atomic_store_n(&box->block, NULL, __ATOMIC_RELEASE);
    if (team->touch && !marked(door->address(block), size, (uint64_t)(uintptr_t)block)) {
        worker->spoiled++;
    }
    door->free(door->state, block);
}

static void *worker_run(void *argument)
{
    Worker *worker = argument;
    Team *team = worker->team;
    if (team->prepare != NULL) {
        team->prepare(team->context);
    }
    for (uint64_t turn = 0; turn < team->turns; turn++) {
        uint32_t index = (uint32_t)(random_next(&worker->random) % BOXES);
        uint32_t door = index % team->door_count;
        if (__atomic_load_n(&team->box[index].block, __ATOMIC_RELAXED) != NULL) {
            box_empty(worker, index, &team->doors[door]);
        } else if (team->takes_any || door == worker->number % team->door_count) {
            box_fill(worker, index, &team->doors[door]);
        }
    }
    __atomic_sub_fetch(&team->running, 1, __ATOMIC_RELEASE);
    return NULL;
}

EXPORT Team *team_start(const Door *doors, uint32_t door_count, uint32_t workers, uint64_t turns, size_t most,
                        bool touch, bool takes_any, int (*prepare)(void *), void *context, uint64_t seed)
{
    Team *team = calloc(1, sizeof(Team));
    if (team == NULL || workers > MOST_WORKERS || most < 128) {
        free(team);
        return NULL;
    }
    *team = (Team){.doors = doors, .door_count = door_count, .workers = workers, .turns = turns, .most = most,
                   .touch = touch, .takes_any = takes_any, .prepare = prepare, .context = context,
                   .running = workers};
    for (uint32_t i = 0; i < workers; i++) {
        team->worker[i].team = team;
        team->worker[i].number = i;
        team->worker[i].random = seed * 0x9E3779B97F4A7C15u + i + 1;
        if (pthread_create(&team->worker[i].thread, NULL, worker_run, &team->worker[i]) != 0) {
            abort();
        }
    }
    return team;
}

EXPORT uint32_t team_running(const Team *team)
{
    return __atomic_load_n(&team->running, __ATOMIC_ACQUIRE);
}

/* Waits for the workers and frees the blocks in the boxes; returns how many blocks were spoiled. */
EXPORT uint64_t team_end(Team *team, uint64_t *refused)
{
    uint64_t spoiled = 0;
    for (uint32_t i = 0; i < team->workers; i++) {
        pthread_join(team->worker[i].thread, NULL);
        spoiled += team->worker[i].spoiled;
        *refused += team->worker[i].refused;
    }
    for (uint32_t i = 0; i < BOXES; i++) {
        if (team->box[i].block != NULL) {
            const Door *door = &team->doors[i % team->door_count];
            door->free(door->state, team->box[i].block);
        }
    }
    free(team);
    return spoiled;
}
