/* check_shadow.c: stores which bytes of device memory were written since they were allocated.
 *
 * A page of 2 MiB has an entry only if it contains bytes that were allocated and not written. Without an entry, all
 * bytes of the page count as written; so memory whose allocation the checker did not see gives no findings.
 * A copy from device memory to device memory also copies the state "not written" of the bytes.
 *
 * Thread rule: one lock guards the entries; no other lock is taken while it is held. */
#include "check/checker.h"
#include "memory/memory.h"
#include "races/race_inside.h"

#include <stdlib.h>
#include <string.h>

enum { SPAN_SHIFT = 21, SPAN = 1 << SPAN_SHIFT, BUCKETS = 1 << 14 };
enum { CARRY = 4096 }; /* most bytes whose states (written or not) one step of a copy carries over */
enum { PIECES = 16 };   /* ranges of a copy of the host that are looked at together */
enum { SPARES_MOST = 8 }; /* bitmaps that are kept for other pages */

/* In the place of a site: the place from which the thread's call was made, looked up if there is a finding. */
static const RaceSite HERE;

typedef struct ShadowPage {
    struct ShadowPage *next;
    const void *space; /* the physical memory that the page is part of; NULL: the page is known by its address */
    uint64_t number;   /* the page's offset in `space`, or its address if `space` is NULL, divided by SPAN */
    uint64_t *written; /* a bit for each byte, set if it was written; NULL: no byte was written */
    uint32_t missing;  /* number of bytes that were not written */
} ShadowPage;

FILE_LOCK(shadow_lock);
static ShadowPage *pages[BUCKETS];
static uint64_t *spares[SPARES_MOST]; /* bitmaps whose bits are all set */
static size_t spare_count;

/* ---- pages (the lock is held) -------------------------------------------------------------------- */

static ShadowPage **page_link(const void *space, uint64_t number)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)space ^ number) * UINT64_C(0x9e3779b97f4a7c15);
    ShadowPage **link = &pages[mixed >> 50];
    while (*link != NULL && ((*link)->space != space || (*link)->number != number)) {
        link = &(*link)->next;
    }
    return link;
}

/* Returns how many of the bits `from` to `to` - 1 are in the first one's word. */
static uint32_t word_part(uint32_t from, uint32_t to)
{
    uint32_t left = 64 - from % 64;
    return left < to - from ? left : to - from;
}

/* Returns a mask of `count` bits of a word, beginning with the bit `from`. */
static uint64_t word_mask(uint32_t from, uint32_t count)
{
    return (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1) << from % 64;
}

/* Returns how many bits are set, of the `count` ones of the mask: mostly none or all. */
static uint32_t bits_count(uint64_t bits, uint64_t mask, uint32_t count)
{
    return bits == 0 ? 0 : bits == mask ? count : (uint32_t)__builtin_popcountll(bits);
}

/* Sets or clears the bits `from` to `to` - 1; returns how many changed. */
static uint32_t bits_change(uint64_t *bits, uint32_t from, uint32_t to, bool value)
{
    uint32_t changed = 0;
    while (from < to) {
        uint32_t count = word_part(from, to);
        uint64_t mask = word_mask(from, count);
        uint64_t *word = &bits[from / 64], before = *word;
        *word = value ? before | mask : before & ~mask;
        changed += bits_count(before ^ *word, mask, count);
        from += count;
    }
    return changed;
}

/* Allocates the page's bitmap if it has none; false without memory. */
static bool page_open(ShadowPage *page)
{
    if (page->written == NULL && page->missing == 0 && spare_count != 0) {
        page->written = spares[--spare_count];
    }
    if (page->written == NULL) {
        page->written = calloc(SPAN / 64, sizeof *page->written);
        if (page->written != NULL && page->missing == 0) {
            memset(page->written, 0xff, SPAN / 8);
        }
    }
    return page->written != NULL;
}

static void page_drop(ShadowPage **link)
{
    ShadowPage *page = *link;
    *link = page->next;
    if (page->written != NULL && page->missing == 0 && spare_count < SPARES_MOST) {
        spares[spare_count++] = page->written;
    } else {
        free(page->written);
    }
    free(page);
}

/* Marks the bytes `from` to `to` - 1 of a page as not written. If no memory can be allocated for the page's entry, they
 * count as written. */
static void page_forget(const void *space, uint64_t number, uint32_t from, uint32_t to)
{
    ShadowPage **link = page_link(space, number), *page = *link;
    if (page == NULL) {
        page = calloc(1, sizeof *page);
        if (page == NULL) {
            return;
        }
        *page = (ShadowPage){.next = *link, .space = space, .number = number};
        *link = page;
    }
    if (to - from == SPAN) {
        free(page->written);
        page->written = NULL;
        page->missing = SPAN;
    } else if (page->missing != SPAN) {
        if (page_open(page)) {
            page->missing += bits_change(page->written, from, to, false);
        } else {
            page_drop(link);
        }
    }
}

static void page_write(const void *space, uint64_t number, uint32_t from, uint32_t to)
{
    ShadowPage **link = page_link(space, number), *page = *link;
    if (page == NULL) {
        return;
    }
    if (to - from == SPAN || !page_open(page)) {
        page_drop(link);
        return;
    }
    page->missing -= bits_change(page->written, from, to, true);
    if (page->missing == 0) {
        page_drop(link);
    }
}

/* Returns how many of the bytes `from` to `to` - 1 of a page were not written. */
static uint32_t page_missing(const void *space, uint64_t number, uint32_t from, uint32_t to)
{
    const ShadowPage *page = *page_link(space, number);
    uint32_t missing = 0;
    if (page == NULL) {
        return 0;
    }
    if (page->written == NULL) {
        return to - from;
    }
    while (from < to) {
        uint32_t count = word_part(from, to);
        uint64_t mask = word_mask(from, count);
        missing += bits_count(~page->written[from / 64] & mask, mask, count);
        from += count;
    }
    return missing;
}

/* ---- ranges -------------------------------------------------------------------------------------- */

static uint64_t part_end(uint64_t at, uint64_t end)
{
    uint64_t stop = (at >> SPAN_SHIFT << SPAN_SHIFT) + SPAN;
    return stop < end ? stop : end;
}

/* Marks the bytes `begin` to `end` - 1 as written or as not written; the lock is held. */
static void range_mark(const void *space, uint64_t begin, uint64_t end, bool written)
{
    for (uint64_t at = begin; at < end; at = part_end(at, end)) {
        uint32_t from = (uint32_t)(at & (SPAN - 1));
        (written ? page_write : page_forget)(space, at >> SPAN_SHIFT, from,
                                             from + (uint32_t)(part_end(at, end) - at));
    }
}

void shadow_mark(uintptr_t begin, uintptr_t end, bool written)
{
    pthread_mutex_lock(&shadow_lock);
    range_mark(NULL, begin, end, written);
    pthread_mutex_unlock(&shadow_lock);
}

/* Returns how many of the bytes `begin` to `end` - 1 were not written; the lock is held. */
static size_t range_missing(const void *space, uint64_t begin, uint64_t end)
{
    size_t missing = 0;
    for (uint64_t at = begin; at < end; at = part_end(at, end)) {
        uint32_t from = (uint32_t)(at & (SPAN - 1));
        missing += page_missing(space, at >> SPAN_SHIFT, from,
                                from + (uint32_t)(part_end(at, end) - at));
    }
    return missing;
}

/* ---- accesses ------------------------------------------------------------------------------------ */

static void unwritten_tell(const char *name, const RaceSite *site, const RaceBytes *bytes,
                           size_t missing)
{
    uintptr_t address = bytes->base + bytes->begin;
    size_t length = bytes->end - bytes->begin;
    CheckBlock block;
    CheckReport report = check_begin(CHECK_INIT, "uninitialised", "%s reads %zu bytes at %p, of which "
                                     "%zu were never written", name, length, (void *)address, missing);
    report.address = address;
    report.bytes = length;
    check_place(&report, site == &HERE ? site_here() : site, "%s", name);
    if (bytes->space == NULL && check_block_find(address, &block)) {
        check_place(&report, block.made, "allocated by %s: %zu bytes of device %d at %p", block.made_by,
                    block.size, block.device, (void *)block.base);
    }
    check_tell(&report);
}

static void access_one(const char *name, const RaceSite *site, const RaceBytes *bytes)
{
    size_t missing = 0;
    pthread_mutex_lock(&shadow_lock);
    if (bytes->kind != TOUCH_READ) {
        range_mark(bytes->space, bytes->begin, bytes->end, true);
    } else {
        missing = range_missing(bytes->space, bytes->begin, bytes->end);
    }
    pthread_mutex_unlock(&shadow_lock);
    if (missing != 0) {
        unwritten_tell(name, site, bytes, missing);
    }
}

/* True for device memory; other memory has no shadow. */
static bool is_shadowed(const RaceBytes *bytes)
{
    const Arena *arena = bytes->space != NULL ? NULL : arena_at(bytes->begin);
    return bytes->space != NULL || (arena != NULL && arena->device != BOOK_HOST);
}

/* ---- copies within device memory (the lock is held) ------------------------------------------------
 * A copy carries the state of each byte (written or not written) from the source to the destination. */

/* Carries the states of at most CARRY bytes. Reads all states before it changes one, because the ranges may overlap. */
static void chunk_carry(const RaceBytes *from, const RaceBytes *to, uint64_t at, uint64_t length)
{
    uint64_t begin = from->begin + at, target = to->begin + at;
    size_t missing = range_missing(from->space, begin, begin + length);
    if (missing == 0 || missing == length) {
        range_mark(to->space, target, target + length, missing == 0);
        return;
    }
    bool written[CARRY];
    for (uint64_t i = 0; i < length; i++) {
        written[i] = range_missing(from->space, begin + i, begin + i + 1) == 0;
    }
    for (uint64_t i = 0, next; i < length; i = next) {
        for (next = i + 1; next < length && written[next] == written[i]; next++) {
        }
        range_mark(to->space, target + i, target + next, written[i]);
    }
}

/* Carries the states of `length` bytes. If the destination begins behind the source in the same memory, goes backwards,
 * so that states are read before they are overwritten. */
static void carry(const RaceBytes *from, const RaceBytes *to, uint64_t length)
{
    bool backwards = from->space == to->space && to->begin > from->begin;
    for (uint64_t done = 0; done < length;) {
        uint64_t part = length - done < CARRY ? length - done : CARRY;
        chunk_carry(from, to, backwards ? length - done - part : done, part);
        done += part;
    }
}

/* Returns how many consecutive pieces from index `first` on are of that kind and have a shadow; *total gets the sum of
 * their bytes. */
static size_t pieces_of(const RaceBytes *bytes, size_t first, size_t count, TouchKind kind,
                        uint64_t *total)
{
    size_t at = first;
    for (*total = 0; at < count && bytes[at].kind == kind && is_shadowed(&bytes[at]); at++) {
        *total += bytes[at].end - bytes[at].begin;
    }
    return at - first;
}

/* Carries the states from the first `reads` pieces (the source) to all other pieces (the destination). Both have
 * the same number of bytes, but may be divided differently: rows with different pitches, or mappings of different
 * sizes. */
static void pieces_carry(const RaceBytes *bytes, size_t reads, size_t count)
{
    RaceBytes from = bytes[0], to = bytes[reads];
    for (size_t read = 0, write = reads; read < reads && write < count;) {
        uint64_t source = from.end - from.begin, target = to.end - to.begin;
        uint64_t length = source < target ? source : target;
        carry(&from, &to, length);
        from.begin += length;
        to.begin += length;
        if (from.begin == from.end && ++read < reads) {
            from = bytes[read];
        }
        if (to.begin == to.end && ++write < count) {
            to = bytes[write];
        }
    }
}

/* If the pieces are those of a copy within device memory, carries the states and returns true; else returns false. */
static bool step_carries(const char *name, const RaceBytes *bytes, size_t count)
{
    uint64_t source, target;
    if (count < 2 || strstr(name, "emcpy") == NULL) {
        return false;
    }
    size_t reads = pieces_of(bytes, 0, count, TOUCH_READ, &source);
    size_t writes = pieces_of(bytes, reads, count, TOUCH_WRITE, &target);
    if (reads == 0 || writes == 0 || reads + writes != count || source != target) {
        return false;
    }
    pthread_mutex_lock(&shadow_lock);
    pieces_carry(bytes, reads, count);
    pthread_mutex_unlock(&shadow_lock);
    return true;
}

void shadow_step(const char *name, const RaceSite *site, const RaceBytes *bytes, size_t count)
{
    if (step_carries(name, bytes, count)) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_shadowed(&bytes[i])) {
            access_one(name, site, &bytes[i]);
        }
    }
}

typedef struct HostStep {
    RaceBytes bytes[PIECES];
    size_t count;
} HostStep;

static void host_piece(void *context, const RaceBytes *bytes)
{
    HostStep *step = context;
    if (step->count == PIECES) {
        shadow_step(check_call(), &HERE, bytes, 1);
        return;
    }
    step->bytes[step->count++] = *bytes;
}

void shadow_host(const void *dst, const void *src, size_t bytes)
{
    HostStep step;
    step.count = 0;
    if (src != NULL) {
        race_memory.resolve(src, bytes, TOUCH_READ, host_piece, &step);
    }
    race_memory.resolve(dst, bytes, TOUCH_WRITE, host_piece, &step);
    shadow_step(check_call(), &HERE, step.bytes, step.count);
}
