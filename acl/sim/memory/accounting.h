/* Accounting of physical memory: counts the bytes of device memory that are in use, by the kind of
 * call that allocated them and by the kind of their pages.
 *
 * B1  total    a device's total == the sum over its kinds == the sum over its page sizes
 * B2  limit    total + the bytes that other processes hold (shared_capacity.h) <= the device's
 *              configured capacity (unless that was lowered later)
 * B3  peak     peak == the largest total since the last reset of the peak
 *
 * Thread rule: the counts are atomics; two threads that call books_take together never exceed the
 * capacity. */
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

/* Adds `bytes` to the counts; false, and nothing is added, if the device has fewer bytes left. */
bool books_take(int32_t device, BookKind kind, PageKind page, size_t bytes);
void books_give(int32_t device, BookKind kind, PageKind page, size_t bytes);
void books_view(int32_t device, BookView *view);
/* Returns how many bytes of the device are not in use. */
size_t books_free(int32_t device);
/* Sets the message of an allocation for which the device (BOOK_HOST: the host) has not enough memory, and returns
 * 207001. */
aclError books_refuse(const char *function, size_t bytes, int32_t device);

/* The part of the control API that reads the accounting: total and peak in bytes, and the reset of the peak. */
SIM_SHARED size_t acl_sim_physical_bytes(int32_t device);
SIM_SHARED size_t acl_sim_physical_peak(int32_t device);
SIM_SHARED void acl_sim_physical_reset_peak(int32_t device);

#endif
