/* Accounting of physical memory: every reserved byte of device memory, by the kind of its holder.
 *
 * B1  total    a device's total == the sum over its kinds == the sum over its page sizes
 * B2  limit    total, and what other processes hold (shared_capacity.h), <= the device's configured
 *              capacity (unless that was lowered later)
 * B3  peak     peak >= total since the last reset
 *
 * Thread rule: atomics only; books_take never lets two threads exceed the capacity together. */
#ifndef SIM_ACCOUNTING_H
#define SIM_ACCOUNTING_H

#include "base/core.h"

typedef enum BookKind { BOOK_MALLOC, BOOK_PHYSICAL, BOOK_POOL, BOOK_KINDS } BookKind;
typedef enum PageKind { PAGE_NORMAL, PAGE_HUGE, PAGE_GIANT, PAGE_KINDS } PageKind;

enum { BOOK_HOST = DEVICE_MAX, BOOK_COUNT }; /* BOOK_HOST: the accounting of pinned host memory, whose
                                                capacity is ACL_SIM_PINNED */

static const size_t PAGE_BYTES[PAGE_KINDS] = {(size_t)1 << 12, (size_t)1 << 21, (size_t)1 << 30};

typedef struct BookView {
    size_t total, peak;
    size_t kinds[BOOK_KINDS], kind_peaks[BOOK_KINDS];
    size_t pages[PAGE_KINDS];
} BookView;

/* Reserves `bytes`; false, with nothing reserved, if the device has less. */
bool books_take(int32_t device, BookKind kind, PageKind page, size_t bytes);
void books_give(int32_t device, BookKind kind, PageKind page, size_t bytes);
void books_view(int32_t device, BookView *view);
/* Returns the bytes of the device that are not reserved. */
size_t books_free(int32_t device);

/* The control API's access to the accounting (sim.h). */
SIM_SHARED size_t acl_sim_physical_bytes(int32_t device);
SIM_SHARED size_t acl_sim_physical_peak(int32_t device);
SIM_SHARED void acl_sim_physical_reset_peak(int32_t device);

#endif
