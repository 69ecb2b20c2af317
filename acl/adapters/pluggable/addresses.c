/* A hash table of live blocks by address.  It has several stripes, each with a spin lock and open addressing.

   When a framework frees a block, only the address is reliable, not the other arguments.  So every live block has
   an entry here.  A stripe doubles when it is two thirds full, and never shrinks.  A removal moves later entries up,
   so there are no entries that mark removed blocks. */
#include "adapters/pluggable/door.h"

#include <stdlib.h>

typedef struct Stripe {
    SpinLock lock;
    Address *places;
    size_t mask; /* number of places, a power of two, minus 1 */
    size_t used;
} Stripe;

static Stripe stripes[DOOR_STRIPES];

/* An address is a multiple of 512, so its lower 9 bits are dropped.  The multiplication spreads the upper bits. */
static inline uint64_t address_hash(const void *address) {
    return ((uint64_t)(uintptr_t)address >> 9) * UINT64_C(0x9E3779B97F4A7C15);
}

static inline Stripe *stripe_of(uint64_t hash) {
    return &stripes[hash >> 60];
}

static inline size_t place_first(const Stripe *stripe, uint64_t hash) {
    return (size_t)(hash >> 20) & stripe->mask;
}

static size_t place_find(const Stripe *stripe, const void *address, uint64_t hash) {
    size_t place = place_first(stripe, hash);
    while (stripe->places[place].address != NULL && stripe->places[place].address != address) {
        place = (place + 1) & stripe->mask;
    }
    return place;
}

static bool stripe_grow(Stripe *stripe) {
    size_t count = stripe->places == NULL ? 64 : 2 * (stripe->mask + 1);
    Address *old = stripe->places;
    size_t old_count = old == NULL ? 0 : stripe->mask + 1;
    Address *places = calloc(count, sizeof(Address));
    if (places == NULL) {
        return false;
    }
    stripe->places = places;
    stripe->mask = count - 1;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i].address != NULL) {
            places[place_find(stripe, old[i].address, address_hash(old[i].address))] = old[i];
        }
    }
    free(old);
    return true;
}

bool address_put(const Address *entry) {
    uint64_t hash = address_hash(entry->address);
    Stripe *stripe = stripe_of(hash);
    bool room = true;
    spin_enter(&stripe->lock);
    if (stripe->places == NULL || 3 * (stripe->used + 1) > 2 * (stripe->mask + 1)) {
        room = stripe_grow(stripe);
    }
    if (room) {
        size_t place = place_find(stripe, entry->address, hash);
        stripe->used += stripe->places[place].address == NULL;
        stripe->places[place] = *entry;
    }
    spin_leave(&stripe->lock);
    return room;
}

/* Removes the entry at `place`.  A search from an entry's first place must not meet an empty place before the entry.
   So a later entry whose first place is at or before the gap is moved into the gap; then its old place is the gap. */
static void stripe_close(Stripe *stripe, size_t place) {
    size_t next = place;
    for (;;) {
        next = (next + 1) & stripe->mask;
        if (stripe->places[next].address == NULL) {
            break;
        }
        size_t first = place_first(stripe, address_hash(stripe->places[next].address));
        if (((next - first) & stripe->mask) >= ((next - place) & stripe->mask)) {
            stripe->places[place] = stripe->places[next];
            place = next;
        }
    }
    stripe->places[place].address = NULL;
    stripe->used--;
}

static bool address_look(void *address, Address *entry, bool take) {
    uint64_t hash = address_hash(address);
    Stripe *stripe = stripe_of(hash);
    bool found = false;
    spin_enter(&stripe->lock);
    if (stripe->places != NULL) {
        size_t place = place_find(stripe, address, hash);
        found = stripe->places[place].address != NULL;
        if (found) {
            *entry = stripe->places[place];
            if (take) {
                stripe_close(stripe, place);
            }
        }
    }
    spin_leave(&stripe->lock);
    return found;
}

bool address_take(void *address, Address *entry) {
    return address_look(address, entry, true);
}

bool address_find(void *address, Address *entry) {
    return address_look(address, entry, false);
}
