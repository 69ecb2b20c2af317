/* race_bytes.c: stores which tasks used which bytes last.
 *
 * Memory is divided into pages of 2 MiB. Each page has a sorted array of cells; a cell is a range
 * of bytes that the same tasks used, and has the last write and the uses after it (R2).
 *
 * Thread rule: race_lock. */
#include "races/race_inside.h"

#include <stdlib.h>
#include <string.h>

typedef struct Use {
    struct Use *next;
    RaceTask *task;
    uintptr_t base; /* address of offset 0 in the mapping that was used */
    TouchKind kind;
} Use;

typedef struct Cell {
    uint32_t begin, end; /* offsets in the page */
    Use *uses;           /* the last write and the uses after it (R2) */
} Cell;

typedef struct Page {
    struct Page *next;
    const void *space;    /* the physical memory; NULL: `index` counts pages of addresses */
    uint64_t index;       /* number of the page in `space` */
    uint32_t count, room; /* cells that are used; cells that are allocated */
    Cell *cells;
} Page;

enum { PAGE_SHIFT = 21, BUCKETS = 1 << 14, CELLS_SWEEP = 1 << 14 };
static const uint64_t PAGE_SPAN = UINT64_C(1) << PAGE_SHIFT;

static Page *buckets[BUCKETS];
static size_t cell_count, sweep_at = CELLS_SWEEP; /* cells in all pages; the number at which all pages are swept */

/* ---- pages --------------------------------------------------------------------------------------- */

static size_t bucket_of(const void *space, uint64_t index)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)space ^ index) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> (64 - 14));
}

static Page *page_find(const void *space, uint64_t index, bool make)
{
    Page **bucket = &buckets[bucket_of(space, index)];
    for (Page *page = *bucket; page != NULL; page = page->next) {
        if (page->space == space && page->index == index) {
            return page;
        }
    }
    Page *page = make ? calloc(1, sizeof *page) : NULL;
    if (page != NULL) {
        *page = (Page){.next = *bucket, .space = space, .index = index};
        *bucket = page;
    }
    return page;
}

static void uses_free(Use *use)
{
    while (use != NULL) {
        Use *next = use->next;
        task_unuse(use->task);
        free(use);
        use = next;
    }
}

static Use *use_new(RaceTask *task, uintptr_t base, TouchKind kind, Use *next)
{
    Use *use = malloc(sizeof *use);
    if (use == NULL) {
        race_give_up("out of host memory");
        return next;
    }
    *use = (Use){next, task, base, kind};
    task->refs++;
    return use;
}

static Use *uses_copy(const Use *use)
{
    return use == NULL ? NULL : use_new(use->task, use->base, use->kind, uses_copy(use->next));
}

/* Inserts a cell at the index; false if there is no memory. */
static bool cell_insert(Page *page, uint32_t at, Cell cell)
{
    if (page->count == page->room) {
        uint32_t room = page->room * 2 + 4;
        Cell *more = realloc(page->cells, room * sizeof *more);
        if (more == NULL) {
            race_give_up("out of host memory");
            return false;
        }
        page->cells = more;
        page->room = room;
    }
    memmove(page->cells + at + 1, page->cells + at, (page->count - at) * sizeof *page->cells);
    page->cells[at] = cell;
    page->count++;
    cell_count++;
    return true;
}

static void cells_remove(Page *page, uint32_t from, uint32_t to)
{
    if (from == to) {
        return;
    }
    for (uint32_t i = from; i < to; i++) {
        uses_free(page->cells[i].uses);
    }
    memmove(page->cells + from, page->cells + to, (page->count - to) * sizeof *page->cells);
    page->count -= to - from;
    cell_count -= to - from;
}

/* Returns the index of the first cell that ends after the offset. */
static uint32_t cell_after(const Page *page, uint32_t offset)
{
    uint32_t low = 0, high = page->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (page->cells[middle].end > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

/* Splits a cell that lies across the offset: [ cell ] => [ cell ][ rest ]. */
static void cell_split(Page *page, uint32_t offset)
{
    uint32_t at = cell_after(page, offset);
    if (at == page->count || page->cells[at].begin >= offset) {
        return;
    }
    Cell rest = {offset, page->cells[at].end, uses_copy(page->cells[at].uses)};
    if (cell_insert(page, at + 1, rest)) {
        page->cells[at].end = offset;
    }
}

/* ---- sweeping: removes uses that the host has seen complete; they cannot conflict any more (R3) ---- */

static void uses_prune(Use **link)
{
    while (*link != NULL) {
        Use *use = *link;
        if (clock_get(&race_seen_clock, use->task->slot) >= use->task->n) {
            *link = use->next;
            task_unuse(use->task);
            free(use);
        } else {
            link = &use->next;
        }
    }
}

static void page_sweep(Page *page)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < page->count; i++) {
        uses_prune(&page->cells[i].uses);
        if (page->cells[i].uses != NULL) {
            page->cells[kept++] = page->cells[i];
        }
    }
    cell_count -= page->count - kept;
    page->count = kept;
}

static void page_drop(Page **link)
{
    Page *page = *link;
    *link = page->next;
    cells_remove(page, 0, page->count);
    free(page->cells);
    free(page);
}

static void sweep_if_due(void)
{
    if (cell_count < sweep_at) {
        return;
    }
    for (size_t i = 0; i < BUCKETS; i++) {
        for (Page **link = &buckets[i]; *link != NULL;) {
            page_sweep(*link);
            if ((*link)->count == 0) {
                page_drop(link);
            } else {
                link = &(*link)->next;
            }
        }
    }
    sweep_at = cell_count * 2 < CELLS_SWEEP ? CELLS_SWEEP : cell_count * 2;
}

void bytes_space_gone(const void *space, uint64_t bytes)
{
    for (uint64_t index = 0; index < (bytes + PAGE_SPAN - 1) >> PAGE_SHIFT; index++) {
        Page **link = &buckets[bucket_of(space, index)];
        while (*link != NULL && ((*link)->space != space || (*link)->index != index)) {
            link = &(*link)->next;
        }
        if (*link != NULL) {
            page_drop(link);
        }
    }
}

/* ---- accesses ------------------------------------------------------------------------------------ */

bool kinds_conflict(TouchKind one, TouchKind other)
{
    if (one == TOUCH_ATOMIC || other == TOUCH_ATOMIC) {
        return false;
    }
    return one == TOUCH_WRITE || other == TOUCH_WRITE;
}

typedef struct Access {
    RaceTask *task;
    const Clock *clock;
    uintptr_t base;
    TouchKind kind;
    bool is_host;
    HostAct act;
} Access;

static bool use_before(const Use *use, const Access *access)
{
    bool own = !access->is_host && use->task->slot == access->task->slot;
    return own || clock_get(access->clock, use->task->slot) >= use->task->n;
}

static void use_check(const Use *use, const Access *access, uintptr_t begin, uintptr_t end)
{
    bool hits = access->is_host && access->act != HOST_TOUCHES
                    ? access->act == HOST_FREES || use->base == access->base
                    : kinds_conflict(use->kind, access->kind);
    if (hits && !use_before(use, access)) {
        race_report(&(RaceFinding){access->act, access->is_host, use->task, access->task, use->kind,
                                   access->kind, begin, end, false});
    }
}

static void cell_check(const Page *page, const Cell *cell, const Access *access)
{
    uint64_t offset = (page->index << PAGE_SHIFT) + cell->begin;
    for (const Use *use = cell->uses; use != NULL; use = use->next) {
        uintptr_t begin = access->base + offset;
        use_check(use, access, begin, begin + (cell->end - cell->begin));
    }
}

/* Adds a use that is not a write. Removes earlier uses that it makes unnecessary (R2). */
static void cell_add(Cell *cell, const Access *access)
{
    for (Use **link = &cell->uses; *link != NULL;) {
        Use *use = *link;
        bool same = use->base == access->base || use->kind == TOUCH_ATOMIC;
        bool weaker = use->kind != TOUCH_WRITE
                      && (use->kind == TOUCH_ATOMIC || access->kind != TOUCH_ATOMIC);
        if (use->task == access->task && use->kind == TOUCH_WRITE) {
            return;
        }
        if (weaker && same && use_before(use, access)) {
            *link = use->next;
            task_unuse(use->task);
            free(use);
        } else {
            link = &use->next;
        }
    }
    cell->uses = use_new(access->task, access->base, access->kind, cell->uses);
}

/* Checks and stores the part of an access that lies in one page. */
static void page_access(Page *page, uint32_t begin, uint32_t end, const Access *access)
{
    cell_split(page, begin);
    cell_split(page, end);
    uint32_t from = cell_after(page, begin), to = from;
    while (to < page->count && page->cells[to].begin < end) {
        cell_check(page, &page->cells[to], access);
        to++;
    }
    if (access->kind == TOUCH_WRITE) {
        cells_remove(page, from, to);
        (void)cell_insert(page, from, (Cell){begin, end, use_new(access->task, access->base,
                                                                 access->kind, NULL)});
        return;
    }
    for (uint32_t at = begin; at < end && races_on(); from++) {
        uint32_t stop = from < page->count && page->cells[from].begin < end
                            ? page->cells[from].begin : end;
        if (at < stop) {
            Cell gap = {at, stop, NULL};
            if (!cell_insert(page, from, gap)) {
                return;
            }
        }
        cell_add(&page->cells[from], access);
        at = page->cells[from].end;
    }
}

static void page_host(Page *page, uint32_t begin, uint32_t end, const Access *access)
{
    for (uint32_t i = cell_after(page, begin); i < page->count && page->cells[i].begin < end; i++) {
        cell_check(page, &page->cells[i], access);
    }
}

/* Returns the end of that part of the range which lies in its first page. */
static uint64_t part_end(uint64_t begin, uint64_t end)
{
    uint64_t stop = ((begin >> PAGE_SHIFT) + 1) << PAGE_SHIFT;
    return stop < end ? stop : end;
}

void bytes_access(RaceTask *task, const Clock *clock, const RaceBytes *bytes)
{
    Access access = {task, clock, bytes->base, bytes->kind, false, HOST_TOUCHES};
    sweep_if_due();
    for (uint64_t at = bytes->begin; at < bytes->end && races_on();) {
        uint64_t stop = part_end(at, bytes->end);
        Page *page = page_find(bytes->space, at >> PAGE_SHIFT, true);
        if (page == NULL) {
            race_give_up("out of host memory");
            return;
        }
        uint32_t from = (uint32_t)(at & (PAGE_SPAN - 1));
        page_access(page, from, from + (uint32_t)(stop - at), &access);
        at = stop;
    }
}

void bytes_host(HostAct act, RaceTask *task, const Clock *clock, const RaceBytes *bytes)
{
    Access access = {task, clock, bytes->base, bytes->kind, true, act};
    for (uint64_t at = bytes->begin; at < bytes->end;) {
        uint64_t stop = part_end(at, bytes->end);
        Page *page = page_find(bytes->space, at >> PAGE_SHIFT, false);
        uint32_t from = (uint32_t)(at & (PAGE_SPAN - 1));
        if (page != NULL) {
            page_host(page, from, from + (uint32_t)(stop - at), &access);
        }
        at = stop;
    }
}

/* Removes the uses that were made through the mapping at `base`. */
static void cell_forget(Cell *cell, uintptr_t base)
{
    for (Use **link = &cell->uses; *link != NULL;) {
        Use *use = *link;
        if (use->base == base) {
            *link = use->next;
            task_unuse(use->task);
            free(use);
        } else {
            link = &use->next;
        }
    }
}

static void page_forget(Page *page, uint32_t begin, uint32_t end, uintptr_t base)
{
    cell_split(page, begin);
    cell_split(page, end);
    uint32_t from = cell_after(page, begin), to = from;
    while (to < page->count && page->cells[to].begin < end) {
        if (base != 0) {
            cell_forget(&page->cells[to], base);
        }
        to++;
    }
    if (base == 0) {
        cells_remove(page, from, to);
    }
}

void bytes_forget(const RaceBytes *bytes, uintptr_t base)
{
    for (uint64_t at = bytes->begin; at < bytes->end;) {
        uint64_t stop = part_end(at, bytes->end);
        Page *page = page_find(bytes->space, at >> PAGE_SHIFT, false);
        uint32_t from = (uint32_t)(at & (PAGE_SPAN - 1));
        if (page != NULL) {
            page_forget(page, from, from + (uint32_t)(stop - at), base);
        }
        at = stop;
    }
}

/* Searches only the first page: the bytes are one word, which lies in one page. */
void bytes_writers(const RaceBytes *bytes, void (*tell)(void *context, uint32_t slot),
                   void *context)
{
    const Page *page = page_find(bytes->space, bytes->begin >> PAGE_SHIFT, false);
    uint32_t from = (uint32_t)(bytes->begin & (PAGE_SPAN - 1));
    uint32_t end = from + (uint32_t)(bytes->end - bytes->begin);
    uint32_t i = page == NULL ? 0 : cell_after(page, from);
    for (; page != NULL && i < page->count && page->cells[i].begin < end; i++) {
        for (const Use *use = page->cells[i].uses; use != NULL; use = use->next) {
            if (use->kind == TOUCH_WRITE || use->kind == TOUCH_USE) {
                tell(context, use->task->slot);
            }
        }
    }
}
