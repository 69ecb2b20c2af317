/* Host memory on an older kernel, which does not know MADV_POPULATE_READ and MADV_POPULATE_WRITE. */
#include <errno.h>
#include <sys/mman.h>

static int old_madvise(void *address, size_t bytes, int advice)
{
    (void)address;
    (void)bytes;
    (void)advice;
    errno = EINVAL;
    return -1;
}
#define madvise old_madvise
#include "../../acl/sim/memory/hostprobe.c"

#include "check.h"

enum { PAGES = 200 };

int main(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *area = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(area != MAP_FAILED);
    CHECK(host_reach(area, PAGES * page, false) == PAGES * page);
    CHECK(host_reach(area + 5, PAGES * page - 5, true) == PAGES * page - 5);
    for (size_t end = 0; end < PAGES; end += 33) {
        CHECK(mprotect(area, PAGES * page, PROT_READ | PROT_WRITE) == 0);
        CHECK(mprotect(area + end * page, page, PROT_NONE) == 0);
        CHECK(host_reach(area, PAGES * page, false) == end * page);
        CHECK(end == 0 || host_reach(area + 5, end * page - 5, false) == end * page - 5);
        CHECK(end == 0 || host_reach(area + 5, end * page, false) == end * page - 5);
    }
    CHECK(munmap(area, PAGES * page) == 0);
    return 0;
}
