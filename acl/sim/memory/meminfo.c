/* Queries of free and total memory, and of what an address belongs to. */
#include "generated/exports.h"
#include "memory/memory.h"
#include "memory/shared_capacity.h"
#include "base/soc.h"

#include <stdio.h>
#include <string.h>

/* The memory that an attribute of aclrtGetMemInfo counts. */
typedef struct InfoPart {
    bool on_hbm, on_ddr; /* the attribute counts memory on chips with HBM; on chips without HBM */
    bool normal, huge, giant; /* the kinds of pages that the attribute counts */
} InfoPart;

static const InfoPart INFO_PARTS[] = {
    [ACL_DDR_MEM] = {false, true, true, true, false},
    [ACL_HBM_MEM] = {true, true, true, true, false},
    [ACL_DDR_MEM_HUGE] = {false, true, false, true, false},
    [ACL_DDR_MEM_NORMAL] = {false, true, true, false, false},
    [ACL_HBM_MEM_HUGE] = {true, true, false, true, false},
    [ACL_HBM_MEM_NORMAL] = {true, true, true, false, false},
    [ACL_DDR_MEM_P2P_HUGE] = {false, true, false, true, false},
    [ACL_DDR_MEM_P2P_NORMAL] = {false, true, true, false, false},
    [ACL_HBM_MEM_P2P_HUGE] = {true, true, false, true, false},
    [ACL_HBM_MEM_P2P_NORMAL] = {true, true, true, false, false},
    [ACL_HBM_MEM_HUGE1G] = {true, true, false, false, true},
    [ACL_HBM_MEM_P2P_HUGE1G] = {true, true, false, false, true},
    [ACL_MEM_NORMAL] = {true, true, true, false, false},
    [ACL_MEM_HUGE] = {true, true, false, true, false},
    [ACL_MEM_HUGE1G] = {true, true, false, false, true},
    [ACL_MEM_P2P_NORMAL] = {true, true, true, false, false},
    [ACL_MEM_P2P_HUGE] = {true, true, false, true, false},
    [ACL_MEM_P2P_HUGE1G] = {true, true, false, false, true},
};

/* Counts free and total bytes. Free memory can be allocated as pages of any kind. It is reported as
 * huge as far as it makes whole huge pages, and the remainder as normal, so normal + huge is all free
 * memory. In addition, it is reported as giant as far as it makes whole giant pages. */
static void info_count(const InfoPart *part, int32_t device, size_t *unused, size_t *total)
{
    BookView view;
    books_view(device, &view);
    size_t left = books_free(device);
    size_t odd = left % PAGE_BYTES[PAGE_HUGE];
    size_t others = neighbours_bytes(device), odd_others = others % PAGE_BYTES[PAGE_HUGE];
    *unused = *total = 0;
    if (part->normal) {
        *unused += odd;
        *total += odd + odd_others + view.pages[PAGE_NORMAL];
    }
    if (part->huge) {
        *unused += left - odd;
        *total += left - odd + others - odd_others;
        *total += view.pages[PAGE_HUGE] + view.pages[PAGE_GIANT];
    }
    if (part->giant) {
        *unused += left / PAGE_BYTES[PAGE_GIANT] * PAGE_BYTES[PAGE_GIANT];
        *total += *unused + view.pages[PAGE_GIANT];
    }
}

aclError sim_aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total)
{
    REQUIRE(free);
    REQUIRE(total);
    Context *context;
    if ((int)attr < 0 || (size_t)attr >= sizeof INFO_PARTS / sizeof *INFO_PARTS) {
        return fail(ACL_ERROR_RT_INVALID_MEMORY_TYPE, "attr = %d: expected 0 to %d", (int)attr,
                    (int)ACL_MEM_P2P_HUGE1G);
    }
    TRY(context_require(&context));
    const InfoPart *part = &INFO_PARTS[attr];
    const Soc *soc = soc_current();
    if (part->giant && !soc->has_huge1g) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "attr = %d: %s has no pages of 1 GiB",
                    (int)attr, config.soc);
    }
    *free = *total = 0;
    if (soc->has_hbm ? part->on_hbm : part->on_ddr) {
        info_count(part, context->device, free, total);
    }
    return ACL_SUCCESS;
}

/* Gives one row for each kind of call that allocates memory, the row with most bytes first. (The runtime
 * gives one row for each of its modules.) */
aclError sim_aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo *memUsageInfo,
                                  size_t inputNum, size_t *outputNum)
{
    static const char *const names[BOOK_KINDS] = {"MALLOC", "PHYSICAL", "POOL"};
    REQUIRE(memUsageInfo);
    REQUIRE(outputNum);
    TRY(device_check(deviceId));
    REQUIRE_RT(inputNum > 0);
    BookView view;
    books_view(deviceId, &view);
    bool told[BOOK_KINDS] = {false};
    size_t count = 0;
    for (; count < inputNum && count < BOOK_KINDS; count++) {
        int largest = -1;
        for (int kind = 0; kind < BOOK_KINDS; kind++) {
            bool larger = largest < 0 || view.kinds[kind] > view.kinds[largest];
            largest = !told[kind] && larger ? kind : largest;
        }
        told[largest] = true;
        memset(&memUsageInfo[count], 0, sizeof memUsageInfo[count]);
        snprintf(memUsageInfo[count].name, sizeof memUsageInfo[count].name, "%s", names[largest]);
        memUsageInfo[count].curMemSize = view.kinds[largest];
        memUsageInfo[count].memPeakSize = view.kind_peaks[largest];
    }
    *outputNum = count;
    return ACL_SUCCESS;
}

/* ---- addresses ------------------------------------------------------------------ */
static aclrtMemLocationType location_of(MemoryKind kind)
{
    if (memory_on_device(kind)) {
        return ACL_MEM_LOCATION_TYPE_DEVICE;
    }
    if (kind == MEMORY_MANAGED) {
        return ACL_MEM_LOCATION_TYPE_MANAGED;
    }
    return memory_is_pinned(kind) ? ACL_MEM_LOCATION_TYPE_HOST : ACL_MEM_LOCATION_TYPE_UNREGISTERED;
}

aclError sim_aclrtPointerGetAttributes(const void *ptr, aclrtPtrAttributes *attributes)
{
    REQUIRE(ptr);
    REQUIRE(attributes);
    Memory memory;
    memory_find(ptr, &memory);
    memset(attributes, 0, sizeof *attributes);
    attributes->location.type = location_of(memory.kind);
    if (memory_on_device(memory.kind)) {
        attributes->location.id = (uint32_t)memory.device;
    }
    if (attributes->location.type != ACL_MEM_LOCATION_TYPE_UNREGISTERED) {
        attributes->pageSize = (uint32_t)PAGE_BYTES[memory.page];
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemGetAddressRange(void *ptr, void **pbase, size_t *psize)
{
    REQUIRE(ptr);
    Memory memory;
    if (!memory_find(ptr, &memory) || memory.kind == MEMORY_HOLE ||
        memory.kind == MEMORY_REGISTERED) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "ptr = %p is not inside allocated or mapped memory", ptr);
    }
    if (pbase != NULL) {
        *pbase = (void *)memory.base;
    }
    if (psize != NULL) {
        *psize = memory.size;
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtCheckMemType(void **addrList, uint32_t size, uint32_t memType,
                               uint32_t *checkResult, uint32_t reserve)
{
    static const uint32_t known = ACL_RT_MEM_TYPE_DEV | ACL_RT_MEM_TYPE_DVPP | ACL_RT_MEM_TYPE_RSVD;
    REQUIRE(addrList);
    REQUIRE(checkResult);
    REQUIRE_RT(size > 0);
    REQUIRE_RT(reserve == 0);
    REQUIRE_RT((memType & known) != 0 && (memType & ~known) == 0);
    uint32_t matches = (memType & ACL_RT_MEM_TYPE_DEV) != 0;
    for (uint32_t i = 0; i < size; i++) {
        Memory memory;
        memory_find(addrList[i], &memory);
        matches = matches != 0 && memory_on_device(memory.kind);
    }
    *checkResult = matches;
    return ACL_SUCCESS;
}

/* ---- caches and peers: no work, because host and devices see the same bytes ----- */
static aclError device_range(const char *function, void *address, size_t bytes)
{
    Seen seen;
    TRY(memory_check(function, "devPtr", address, bytes, true, &seen));
    if (!memory_on_device(seen.kind)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "devPtr = %p is not device memory", address);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMemFlush(void *devPtr, size_t size)
{
    REQUIRE(devPtr);
    REQUIRE(size > 0);
    return device_range(__func__, devPtr, size);
}

aclError sim_aclrtMemInvalidate(void *devPtr, size_t size)
{
    REQUIRE(devPtr);
    REQUIRE(size > 0);
    return device_range(__func__, devPtr, size);
}

aclError sim_aclrtMemP2PMap(void *devPtr, size_t size, int32_t dstDevId, uint64_t flags)
{
    REQUIRE(devPtr);
    REQUIRE(size > 0);
    REQUIRE(flags == 0);
    TRY(device_check(dstDevId));
    return device_range(__func__, devPtr, size);
}
