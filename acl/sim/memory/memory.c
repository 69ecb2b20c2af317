/* The malloc family and aclrtFree.
 *
 * Sizes: aclrtMalloc and aclrtMallocCached add the padding of the SoC; all other calls only round
 * up to 32 bytes. Pages: requests of more than 1 MiB get huge pages if the policy allows it, or
 * normal pages if the device has no whole huge page left. Neither malloc nor free waits for a
 * stream. */
#include "memory/memory.h"

#include "base/checks.h"
#include "base/soc.h"
#include "generated/exports.h"
#include "memory/ipc.h"
#include "memory/managed.h"
#include "memory/mempool.h"
#include "races/race.h"
#include "streams/device.h"

static const size_t ALIGN = 32;
static const size_t HUGE_OVER = (size_t)1 << 20;
enum { POLICY_BASE = 7 }; /* mask of the page policy; the bits above it choose bandwidth and access */

typedef struct PagePlan {
    PageKind page;
    bool or_normal; /* take normal pages if no huge page is left */
} PagePlan;

/* Gives size + padding, rounded up to a multiple of 32 bytes; false on overflow. */
static bool size_pad(size_t size, size_t padding, size_t *padded)
{
    size_t append = ALIGN + padding;
    if (size + append < size) {
        return false;
    }
    *padded = (size + append - 1) / ALIGN * ALIGN;
    return true;
}

static PagePlan plan_huge_first(size_t bytes)
{
    return bytes > HUGE_OVER ? (PagePlan){PAGE_HUGE, true} : (PagePlan){PAGE_NORMAL, false};
}

/* Returns the pages for a policy of aclrtMalloc. P2P policies get normal pages, HUGE1G_ONLY_P2P giant pages. */
static PagePlan plan_plain(aclrtMemMallocPolicy policy, size_t bytes)
{
    switch (policy) {
    case ACL_MEM_MALLOC_HUGE_ONLY:
        return (PagePlan){PAGE_HUGE, false};
    case ACL_MEM_MALLOC_NORMAL_ONLY:
    case ACL_MEM_MALLOC_HUGE_FIRST_P2P:
    case ACL_MEM_MALLOC_HUGE_ONLY_P2P:
    case ACL_MEM_MALLOC_NORMAL_ONLY_P2P:
        return (PagePlan){PAGE_NORMAL, false};
    case ACL_MEM_MALLOC_HUGE1G_ONLY:
    case ACL_MEM_MALLOC_HUGE1G_ONLY_P2P:
        return (PagePlan){PAGE_GIANT, false};
    default:
        return plan_huge_first(bytes);
    }
}

/* Returns the pages for a policy of aclrtMallocWithCfg, which is a page policy or-ed with bits for
 * bandwidth and access. */
static PagePlan plan_with_bits(aclrtMemMallocPolicy policy, size_t bytes)
{
    unsigned all = (unsigned)policy;
    if (all == ACL_MEM_MALLOC_HUGE1G_ONLY || all == ACL_MEM_MALLOC_HUGE1G_ONLY_P2P) {
        return (PagePlan){PAGE_GIANT, false};
    }
    switch (all & POLICY_BASE) {
    case ACL_MEM_MALLOC_HUGE_ONLY:
    case ACL_MEM_MALLOC_HUGE_ONLY_P2P:
        return (PagePlan){PAGE_HUGE, false};
    case ACL_MEM_MALLOC_NORMAL_ONLY:
    case ACL_MEM_MALLOC_NORMAL_ONLY_P2P:
        return (PagePlan){PAGE_NORMAL, false};
    default:
        return plan_huge_first(bytes);
    }
}

/* Allocates `bytes` bytes: the `asked` bytes that the program asked for, and padding. */
static aclError take(const char *function, void **out, size_t bytes, size_t asked, PagePlan plan,
                     uint16_t module)
{
    Context *context;
    TRY(context_require(&context));
    if (plan.page == PAGE_GIANT && !soc_current()->has_huge1g) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                         "policy: %s has no pages of 1 GiB", config.soc);
    }
    Arena *arena = arena_of(context->device);
    if (arena == NULL) {
        return refusal_tell(function, "the device's memory");
    }
    BlockInfo info = {.size = bytes, .kind = MEMORY_DEVICE, .page = (uint8_t)plan.page,
                      .module = module};
    uintptr_t at = arena_take(arena, bytes, plan.page, BOOK_MALLOC, &info);
    if (at == 0 && plan.or_normal) {
        info.page = PAGE_NORMAL;
        at = arena_take(arena, bytes, PAGE_NORMAL, BOOK_MALLOC, &info);
    }
    if (at == 0 && arena != NULL) {
        ipc_collect();
        at = arena_take(arena, bytes, info.page, BOOK_MALLOC, &info);
    }
    if (at == 0) {
        return books_refuse(function, bytes, context->device);
    }
    *out = (void *)at;
    if (check_on(CHECK_ANY)) {
        checks.block_made(arena, at, asked);
    }
    return ACL_SUCCESS;
}

static aclError take_padded(const char *function, void **out, size_t size, size_t padding,
                            aclrtMemMallocPolicy policy)
{
    bool giant = policy == ACL_MEM_MALLOC_HUGE1G_ONLY || policy == ACL_MEM_MALLOC_HUGE1G_ONLY_P2P;
    size_t bytes;
    if (!size_pad(size, giant ? 0 : padding, &bytes)) {
        return error_set(function, ACL_ERROR_INVALID_PARAM, "size: %zu bytes and padding overflow",
                         size);
    }
    return take(function, out, bytes, size, plan_plain(policy, bytes), 0);
}

aclError sim_aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy)
{
    REQUIRE(devPtr);
    REQUIRE(size > 0);
    return take_padded(__func__, devPtr, size, soc_current()->padding, policy);
}

aclError sim_aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy)
{
    REQUIRE(devPtr);
    REQUIRE(size > 0);
    return take_padded(__func__, devPtr, size, 0, policy);
}

aclError sim_aclrtMallocCached(void **devPtr, size_t size, aclrtMemMallocPolicy policy)
{
    REQUIRE(devPtr);
    REQUIRE(size > 0);
    bool known = policy == ACL_MEM_MALLOC_HUGE_FIRST || policy == ACL_MEM_MALLOC_HUGE_ONLY ||
                 policy == ACL_MEM_MALLOC_NORMAL_ONLY || policy == ACL_MEM_MALLOC_HUGE1G_ONLY;
    return take_padded(__func__, devPtr, size, soc_current()->padding,
                       known ? policy : ACL_MEM_MALLOC_HUGE_FIRST);
}

/* Checks the attributes of an allocation on a device, and gives its module. If an attribute is given
 * several times, the last one has effect. */
static aclError attributes_check(const char *function, const aclrtMallocConfig *cfg,
                                 int32_t device, uint16_t *module)
{
    uint32_t wanted = (uint32_t)device;
    if (cfg == NULL) {
        return ACL_SUCCESS;
    }
    if (cfg->attrs == NULL) {
        return error_argument(function, ACL_ERROR_RT_PARAM_INVALID, "cfg->attrs");
    }
    for (size_t i = 0; i < cfg->numAttrs; i++) {
        const aclrtMallocAttribute *attr = &cfg->attrs[i];
        if (attr->attr == ACL_RT_MEM_ATTR_MODULE_ID) {
            *module = attr->value.moduleId;
        } else if (attr->attr == ACL_RT_MEM_ATTR_DEVICE_ID) {
            wanted = attr->value.deviceId;
        } else if (attr->attr != ACL_RT_MEM_ATTR_RSV) {
            return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                             "cfg->attrs[%zu]: attribute %d is not one of device memory", i,
                             (int)attr->attr);
        }
    }
    if (wanted != (uint32_t)device) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "cfg: device %u wanted, expected the current one, %d", wanted, device);
    }
    return ACL_SUCCESS;
}

static aclError take_configured(const char *function, void **out, size_t size,
                                aclrtMemMallocPolicy policy, const aclrtMallocConfig *cfg)
{
    Context *context;
    uint16_t module = 0;
    size_t bytes;
    TRY(context_require(&context));
    TRY(attributes_check(function, cfg, context->device, &module));
    if (!size_pad(size, 0, &bytes)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID, "size: %zu overflows", size);
    }
    return take(function, out, bytes, size, plan_with_bits(policy, bytes), module);
}

aclError sim_aclrtMallocWithCfg(void **devPtr, size_t size, aclrtMemMallocPolicy policy,
                                aclrtMallocConfig *cfg)
{
    REQUIRE(devPtr);
    REQUIRE(cfg == NULL || cfg->numAttrs == 0 || cfg->attrs != NULL);
    REQUIRE(size > 0);
    return take_configured(__func__, devPtr, size, policy, cfg);
}

aclError sim_aclrtMallocForTaskScheduler(void **devPtr, size_t size, aclrtMemMallocPolicy policy,
                                         aclrtMallocConfig *cfg)
{
    REQUIRE(devPtr);
    REQUIRE(cfg == NULL || cfg->numAttrs == 0 || cfg->attrs != NULL);
    REQUIRE(size > 0);
    return take_configured(__func__, devPtr, size, policy, cfg);
}

/* ---- freeing -------------------------------------------------------------------- */
aclError memory_free(const char *function, void *address)
{
    uintptr_t at = (uintptr_t)address;
    Arena *arena = arena_at(at);
    ZoneView view;
    if (arena == NULL || !arena_hold(arena, at, &view)) {
        if (check_on(CHECK_MEM)) {
            checks.free_refused(address);
        }
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "%p is not the beginning of an allocation", address);
    }
    if (races_on() && view.info.kind != MEMORY_POOL && stream_running() == NULL) {
        race_freed(function, at, view.bytes);
    }
    if (check_on(CHECK_ANY)) {
        if (view.info.kind == MEMORY_HOST) {
            checks.free_refused(address);
        }
        checks.block_freed(arena, at, &view);
    }
    if (view.info.kind == MEMORY_POOL) {
        return pool_free_now(function, view.info.owner, arena, &view);
    }
    if (view.info.kind == MEMORY_MANAGED) {
        managed_freed(view.info.owner);
    }
    if (!view.info.exported || ipc_block_freed(arena, at, &view)) {
        arena_give_held(arena, at, &view, BOOK_MALLOC);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtFree(void *devPtr)
{
    REQUIRE(devPtr);
    return memory_free(__func__, devPtr);
}

aclError sim_aclrtFreeWithDevSync(void *devPtr)
{
    REQUIRE(devPtr);
    TRY(sim_aclrtSynchronizeDevice());
    return memory_free(__func__, devPtr);
}

/* Called at the device's last reset. Gives freed pages back to the host. Memory that the program has not
 * freed stays allocated, as it does when a context ends. */
static void free_pages_return(int32_t device)
{
    Arena *arena = arena_existing(device);
    for (int i = 0; arena != NULL && i < ZONE_COUNT; i++) {
        zone_purge(&arena->zones[i]);
    }
}

__attribute__((constructor(104))) static void memory_watches_devices(void)
{
    device_memory_settle = free_pages_return;
}

aclError copy_fault(Stream *stream, const char *what, const void *address, size_t bytes)
{
    return error_set("task", ACL_ERROR_RT_SYS_DMA,
                     "stream %u: %s at %p (%zu bytes) was unmapped before its task ran",
                     stream_id(stream), what, address, bytes);
}
