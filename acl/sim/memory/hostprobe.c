/* hostprobe.c: finds out which bytes of ordinary host memory can be accessed without a fault.

   A program may pass a size that is larger than its array. On a device the driver then returns an
   error; here a memcpy would crash the process. So before a copy the kernel is asked to map the
   pages in: MADV_POPULATE_READ and _WRITE (Linux 5.14) change no byte, so they cannot race with
   other writers. An older kernel is asked to read one byte of each page, which does not show
   whether the page can be written.

   The result is for whole pages: bytes behind an array on its last page count as accessible, even
   if they do not belong to the program.

   There is no state: any thread. */
#include "memory/memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
enum { MADV_POPULATE_READ = 22, MADV_POPULATE_WRITE = 23 };
#endif

static const uintptr_t ADDRESS_MOST = UINTPTR_MAX >> 1; /* higher addresses belong to the kernel */
enum { PROBES = 64 }; /* pages for each system call of an older kernel */

/* Reads one byte of each page. True if all pages can be read, and also if a sandbox forbids the system call, because
   then it is not known. */
static bool pages_readable(uintptr_t begin, uintptr_t end, size_t page)
{
    char bytes[PROBES];
    struct iovec remote[PROBES];
    while (begin < end) {
        unsigned count = 0;
        for (; count < PROBES && begin < end; begin += page) {
            remote[count++] = (struct iovec){(void *)begin, 1};
        }
        struct iovec local = {bytes, count};
        ssize_t got = process_vm_readv(getpid(), &local, 1, remote, count, 0);
        if (got != (ssize_t)count) {
            return got < 0 && errno != EFAULT;
        }
    }
    return true;
}

/* Asks the kernel to map in the pages from `begin` on. Returns 0, or the errno of the failure. */
static int pages_populate(uintptr_t begin, size_t bytes, bool write)
{
    int status;
    do {
        status = madvise((void *)begin, bytes, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    } while (status != 0 && (errno == EINTR || errno == EAGAIN));
    return status == 0 ? 0 : errno;
}

static bool pages_touchable(uintptr_t begin, uintptr_t end, size_t page, bool write)
{
    int error = pages_populate(begin, end - begin, write);
    if (error != EINVAL) {
        return error == 0;
    }
    /* EINVAL means that the access is not permitted, or that the kernel does not know the request.
       If the request also fails with EINVAL for the stack of this thread, the kernel does not know
       it. */
    uintptr_t own = (uintptr_t)&error & ~(page - 1);
    return pages_populate(own, page, write) == EINVAL && pages_readable(begin, end, page);
}

size_t host_reach(const void *address, size_t bytes, bool write)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)address, begin = at & ~(page - 1), last;
    if (bytes == 0 || at > ADDRESS_MOST) {
        return 0;
    }
    if (__builtin_add_overflow(at, bytes - 1, &last) || last > ADDRESS_MOST) {
        last = ADDRESS_MOST;
    }
    size_t good = 0, bad = (last - begin) / page + 1; /* numbers of pages that can, and cannot, be touched */
    if (last - at == bytes - 1 && pages_touchable(begin, begin + bad * page, page, write)) {
        return bytes;
    }
    while (good + 1 < bad) {
        size_t middle = good + (bad - good) / 2;
        bool through = pages_touchable(begin + good * page, begin + middle * page, page, write);
        *(through ? &good : &bad) = middle;
    }
    return good == 0 ? 0 : begin + good * page - at;
}
