/* The simulator's address allocator against a model: random takes, gives, lookups and purges, with
 * its invariants (tlsf.h) checked; and threads on one zone. */
#include <pthread.h>
#include <string.h>

#include "../../acl/sim/memory/tlsf.c"
#include "check.h"

enum { UNIT = 512, UNITS = 5000, LIVE = 300, STEPS = 20000, CHECK_EVERY = 97, THREADS = 4 };

static unsigned char owner[UNITS]; /* for each unit: 1 if it is allocated in the model */
static size_t purged;

static uint32_t random_next(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Checks that only free units are given back to the system. */
static void on_purge(void *argument, size_t offset, size_t bytes)
{
    (void)argument;
    for (size_t unit = offset / UNIT; unit < (offset + bytes) / UNIT; unit++) {
        CHECK(!owner[unit]);
    }
    purged += bytes;
}

typedef struct Piece {
    size_t offset, bytes;
} Piece;

static void piece_mark(const Piece *piece, unsigned char value)
{
    for (size_t unit = piece->offset / UNIT; unit < (piece->offset + piece->bytes) / UNIT; unit++) {
        CHECK(owner[unit] != value);
        owner[unit] = value;
    }
}

static bool piece_take(Zone *zone, Piece *piece, uint32_t *state)
{
    BlockInfo info = {.size = random_next(state)};
    size_t units = random_next(state) % 3 == 0 ? random_next(state) % 200 + 1
                                               : random_next(state) % 12 + 1;
    piece->offset = zone_take(zone, units * UNIT - random_next(state) % UNIT, &info);
    piece->bytes = units * UNIT;
    if (piece->offset == SIZE_MAX) {
        return false;
    }
    CHECK(piece->offset + piece->bytes <= (size_t)UNITS * UNIT);
    piece_mark(piece, 1);
    return true;
}

static void piece_look(Zone *zone, const Piece *piece, uint32_t *state)
{
    ZoneView view;
    size_t inside = piece->offset + random_next(state) % piece->bytes;
    CHECK(zone_find(zone, inside, &view));
    CHECK(view.offset == piece->offset && view.bytes == piece->bytes);
}

static void piece_give(Zone *zone, const Piece *piece)
{
    ZoneView view;
    CHECK(!zone_hold(zone, piece->offset + 1, &view));
    CHECK(piece->bytes == UNIT || !zone_hold(zone, piece->offset + UNIT, &view));
    CHECK(zone_hold(zone, piece->offset, &view) && view.bytes == piece->bytes);
    CHECK(!zone_hold(zone, piece->offset, &view) && !zone_find(zone, piece->offset, &view));
    piece_mark(piece, 0);
    zone_give(zone, piece->offset);
    CHECK(!zone_find(zone, piece->offset, &view));
}

static void against_the_model(uint32_t seed)
{
    Zone zone;
    Piece pieces[LIVE] = {{0, 0}};
    uint32_t state = seed;
    CHECK(zone_open(&zone, (size_t)UNITS * UNIT, UNIT, on_purge, NULL));
    for (int step = 0; step < STEPS; step++) {
        Piece *piece = &pieces[random_next(&state) % LIVE];
        if (piece->bytes != 0) {
            piece_look(&zone, piece, &state);
            piece_give(&zone, piece);
            piece->bytes = 0;
        } else if (!piece_take(&zone, piece, &state)) {
            piece->bytes = 0;
        }
        if (step % 1000 == 999) {
            zone_purge(&zone);
        }
        CHECK(step % CHECK_EVERY != 0 || zone_check(&zone) == 0);
    }
    for (int i = 0; i < LIVE; i++) {
        if (pieces[i].bytes != 0) {
            piece_give(&zone, &pieces[i]);
        }
    }
    CHECK(zone_check(&zone) == 0);
    BlockInfo all = {0};
    CHECK(zone_take(&zone, (size_t)UNITS * UNIT, &all) == 0); /* everything is one block again */
    CHECK(zone_take(&zone, UNIT, &all) == SIZE_MAX);
    CHECK(purged > 0);
}

/* Each broken invariant is detected. */
static void checker_notices(void)
{
    Zone zone;
    BlockInfo info = {0};
    CHECK(zone_open(&zone, (size_t)UNITS * UNIT, UNIT, on_purge, NULL));
    CHECK(zone_take(&zone, 4 * UNIT, &info) == 0 && zone_take(&zone, 4 * UNIT, &info) != SIZE_MAX);
    zone.blocks[3].back = 7;
    CHECK(zone_check(&zone) == 1);
    zone.blocks[3].back = 4;
    zone.blocks[4].state = BLOCK_FREE; /* the block is in no bin, and beside a free block */
    CHECK(zone_check(&zone) == 3);
    bin_insert(&zone, 4);
    CHECK(zone_check(&zone) == 2);
    bin_remove(&zone, 4);
    zone.blocks[4].state = BLOCK_LIVE;
    start_set(&zone, 6);
    CHECK(zone_check(&zone) == 4);
    start_clear(&zone, 6);
    CHECK(zone_check(&zone) == 0);
}

static void ignore_purge(void *argument, size_t offset, size_t bytes)
{
    (void)argument;
    (void)offset;
    (void)bytes;
}

static Zone shared;

static void *thread_run(void *argument)
{
    uint32_t state = (uint32_t)(uintptr_t)argument;
    size_t offsets[16];
    memset(offsets, 0xff, sizeof offsets);
    for (int i = 0; i < STEPS; i++) {
        size_t *offset = &offsets[random_next(&state) % 16];
        BlockInfo info = {.size = state};
        ZoneView view;
        if (*offset == SIZE_MAX) {
            *offset = zone_take(&shared, (random_next(&state) % 40 + 1) * UNIT, &info);
        } else {
            CHECK(zone_hold(&shared, *offset, &view) && view.offset == *offset);
            zone_give(&shared, *offset);
            *offset = SIZE_MAX;
        }
    }
    return NULL;
}

static void threads_share(void)
{
    pthread_t threads[THREADS];
    CHECK(zone_open(&shared, (size_t)UNITS * UNIT, UNIT, ignore_purge, NULL));
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, thread_run, (void *)(uintptr_t)(i + 1)) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(zone_check(&shared) == 0);
}

int main(void)
{
    for (uint32_t seed = 1; seed <= 5; seed++) {
        against_the_model(seed * 2654435761u);
    }
    checker_notices();
    threads_share();
    return 0;
}
