/* Accounting of physical memory: see accounting.h. */
#include "memory/accounting.h"
#include "memory/shared_capacity.h"

typedef struct Book {
    _Alignas(64) _Atomic size_t total;
    _Atomic size_t peak;
    _Atomic size_t kinds[BOOK_KINDS];
    _Atomic size_t kind_peaks[BOOK_KINDS];
    _Atomic size_t pages[PAGE_KINDS];
} Book;

static Book books[BOOK_COUNT];

static void peak_raise(_Atomic size_t *peak, size_t value)
{
    size_t seen = atomic_load_explicit(peak, memory_order_relaxed);
    while (seen < value && !atomic_compare_exchange_weak_explicit(
               peak, &seen, value, memory_order_relaxed, memory_order_relaxed)) {
    }
}

static size_t book_limit(int32_t device)
{
    return device == BOOK_HOST ? config.pinned : config.capacity[device];
}

bool books_take(int32_t device, BookKind kind, PageKind page, size_t bytes)
{
    Book *book = &books[device];
    size_t limit = book_limit(device);
    size_t before = atomic_load_explicit(&book->total, memory_order_relaxed);
    do {
        if (before > limit || bytes > limit - before) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&book->total, &before, before + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    if (!neighbours_take(device, bytes, limit)) {
        atomic_fetch_sub_explicit(&book->total, bytes, memory_order_relaxed);
        return false;
    }
    peak_raise(&book->peak, before + bytes);
    size_t of_kind = atomic_fetch_add_explicit(&book->kinds[kind], bytes, memory_order_relaxed);
    peak_raise(&book->kind_peaks[kind], of_kind + bytes);
    atomic_fetch_add_explicit(&book->pages[page], bytes, memory_order_relaxed);
    return true;
}

void books_give(int32_t device, BookKind kind, PageKind page, size_t bytes)
{
    Book *book = &books[device];
    atomic_fetch_sub_explicit(&book->kinds[kind], bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&book->pages[page], bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&book->total, bytes, memory_order_relaxed);
    neighbours_give(device, bytes);
}

void books_view(int32_t device, BookView *view)
{
    Book *book = &books[device];
    view->total = atomic_load_explicit(&book->total, memory_order_relaxed);
    view->peak = atomic_load_explicit(&book->peak, memory_order_relaxed);
    for (int kind = 0; kind < BOOK_KINDS; kind++) {
        view->kinds[kind] = atomic_load_explicit(&book->kinds[kind], memory_order_relaxed);
        view->kind_peaks[kind] = atomic_load_explicit(&book->kind_peaks[kind],
                                                      memory_order_relaxed);
    }
    for (int page = 0; page < PAGE_KINDS; page++) {
        view->pages[page] = atomic_load_explicit(&book->pages[page], memory_order_relaxed);
    }
}

size_t books_free(int32_t device)
{
    size_t total = atomic_load_explicit(&books[device].total, memory_order_relaxed);
    size_t limit = book_limit(device);
    size_t others = neighbours_bytes(device);
    return others < limit && total < limit - others ? limit - others - total : 0;
}

static bool book_exists(int32_t device)
{
    return device >= 0 && device < BOOK_COUNT;
}

size_t acl_sim_physical_bytes(int32_t device)
{
    return book_exists(device) ? atomic_load(&books[device].total) : 0;
}

size_t acl_sim_physical_peak(int32_t device)
{
    return book_exists(device) ? atomic_load(&books[device].peak) : 0;
}

void acl_sim_physical_reset_peak(int32_t device)
{
    if (!book_exists(device)) {
        return;
    }
    Book *book = &books[device];
    atomic_store(&book->peak, atomic_load(&book->total));
    for (int kind = 0; kind < BOOK_KINDS; kind++) {
        atomic_store(&book->kind_peaks[kind], atomic_load(&book->kinds[kind]));
    }
}

aclError books_refuse(const char *function, size_t bytes, int32_t device)
{
    if (device == BOOK_HOST) {
        return error_set(function, ACL_ERROR_RT_MEMORY_ALLOCATION,
                         "size: %zu bytes of pinned host memory, with %zu left of %zu (ACL_SIM_PINNED)", bytes,
                         books_free(device), book_limit(device));
    }
    return error_set(function, ACL_ERROR_RT_MEMORY_ALLOCATION,
                     "size: %zu bytes wanted, device %d has %zu of %zu left", bytes, device,
                     books_free(device), book_limit(device));
}
