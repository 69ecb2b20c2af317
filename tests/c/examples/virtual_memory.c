/* Virtual memory: a range that grows page by page and keeps its address; its pages are moved and freed. */
#include <string.h>

#include "check.h"

enum { PAGES = 8 };

static aclrtPhysicalMemProp properties(int32_t device)
{
    aclrtPhysicalMemProp prop;
    memset(&prop, 0, sizeof prop);
    prop.handleType = ACL_MEM_HANDLE_TYPE_NONE;
    prop.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED;
    prop.memAttr = ACL_HBM_MEM_HUGE;
    prop.location.id = (uint32_t)device;
    prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    return prop;
}

int main(void)
{
    aclrtPhysicalMemProp prop = properties(0);
    aclrtDrvMemHandle pages[PAGES];
    size_t page = 0;
    size_t free_before;
    size_t free_after;
    size_t total;
    void *range;
    unsigned char probe[16];
    open_device(0);
    CHECK(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, &page));
    EXPECT(page >= 4096 && (page & (page - 1)) == 0);
    CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &free_before, &total));
    CHECK(aclrtReserveMemAddress(&range, PAGES * page, 0, NULL, 0));
    for (int i = 0; i < PAGES; i++) {
        unsigned char *at = (unsigned char *)range + (size_t)i * page;
        CHECK(aclrtMallocPhysical(&pages[i], page, &prop, 0));
        CHECK(aclrtMapMem(at, page, 0, pages[i], 0));
        CHECK(aclrtMemset(at, page, i + 1, page));
    }
    /* A copy may cross the border of two pages. */
    CHECK(aclrtMemcpy(probe, sizeof probe, (unsigned char *)range + page - 8, sizeof probe,
                      ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(probe[7] == 1 && probe[8] == 2);
    /* Page 0 is mapped at the other end, with its bytes. */
    CHECK(aclrtUnmapMem((unsigned char *)range + (PAGES - 1) * page));
    CHECK(aclrtUnmapMem(range));
    CHECK(aclrtMapMem((unsigned char *)range + (PAGES - 1) * page, page, 0, pages[0], 0));
    CHECK(aclrtMapMem(range, page, 0, pages[PAGES - 1], 0));
    CHECK(aclrtMemcpy(probe, 1, range, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(probe[0] == PAGES);
    CHECK(aclrtMemcpy(probe, 1, (unsigned char *)range + PAGES * page - 1, 1,
                      ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(probe[0] == 1);
    for (int i = 0; i < PAGES; i++) {
        CHECK(aclrtUnmapMem((unsigned char *)range + (size_t)i * page));
        CHECK(aclrtFreePhysical(pages[i]));
    }
    CHECK(aclrtReleaseMemAddress(range));
    CHECK(aclrtGetMemInfo(ACL_HBM_MEM, &free_after, &total));
    EXPECT(free_before == free_after);
    close_device(0);
    return 0;
}
