/* Pinned host memory, and ordinary host memory that users register.
 *
 * The device address of registered memory is its host address, because kernels and copies of the
 * simulator run on the host. */
#include "base/checks.h"
#include "generated/exports.h"
#include "memory/memory.h"

#include <stdlib.h>
#include "races/race.h"

/* ---- pinned --------------------------------------------------------------------- */
static bool pinned_forget(const void *address);

static aclError host_take(const char *function, void **out, size_t bytes)
{
    Arena *arena = arena_of(BOOK_HOST);
    if (arena == NULL) {
        return refusal_tell(function, "pinned memory");
    }
    BlockInfo info = {.size = bytes, .kind = MEMORY_HOST, .page = PAGE_NORMAL};
    uintptr_t at = arena_take(arena, bytes, PAGE_NORMAL, BOOK_MALLOC, &info);
    if (at == 0 && books_free(BOOK_HOST) < bytes) {
        return books_refuse(function, bytes, BOOK_HOST);
    }
    if (at == 0) {
        return error_set(function, ACL_ERROR_RT_MEMORY_ALLOCATION,
                         "size: no address space for %zu bytes of pinned host memory", bytes);
    }
    *out = (void *)at;
    if (check_on(CHECK_ANY)) {
        checks.block_made(arena, at, bytes);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtMallocHost(void **hostPtr, size_t size)
{
    REQUIRE(hostPtr);
    REQUIRE(size > 0);
    Context *context;
    TRY(context_require(&context));
    return host_take(__func__, hostPtr, size);
}

static bool host_attribute_valid(const aclrtMallocAttribute *attr)
{
    switch (attr->attr) {
    case ACL_RT_MEM_ATTR_MODULE_ID:
    case ACL_RT_MEM_ATTR_VA_FLAG: /* no effect: host and device have the same addresses in the simulator */
        return true;
    default:
        return false;
    }
}

aclError sim_aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg)
{
    REQUIRE(ptr);
    REQUIRE(size > 0);
    Context *context;
    TRY(context_require(&context));
    REQUIRE_RT(cfg == NULL || cfg->attrs != NULL);
    for (size_t i = 0; cfg != NULL && i < cfg->numAttrs; i++) {
        if (!host_attribute_valid(&cfg->attrs[i])) {
            return fail(ACL_ERROR_RT_PARAM_INVALID,
                        "cfg->attrs[%zu]: attribute %d is not one of host memory (MODULE_ID, "
                        "VA_FLAG)", i, (int)cfg->attrs[i].attr);
        }
    }
    return host_take(__func__, ptr, size);
}

/* Called before a block of host memory is freed: reports the free to the order checker and the checker of programs. */
static void host_free_look(const char *function, Arena *arena, const void *address)
{
    uintptr_t at = (uintptr_t)address;
    ZoneView view;
    bool found = arena != NULL && arena_has(arena, at) && arena_find(arena, at, &view)
                 && arena->base + view.offset == at;
    if (!found) {
        if (check_on(CHECK_MEM)) {
            checks.free_refused(address);
        }
        return;
    }
    race_freed(function, at, view.bytes);
    if (check_on(CHECK_ANY)) {
        checks.block_freed(arena, at, &view);
    }
}

static aclError host_free(const char *function, void *address)
{
    uintptr_t at = (uintptr_t)address;
    Arena *arena = arena_existing(BOOK_HOST);
    if (races_on()) {
        host_free_look(function, arena, address);
    }
    if (arena == NULL || !arena_has(arena, at) || !arena_give(arena, at, BOOK_MALLOC)) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "hostPtr = %p is not the beginning of pinned host memory", address);
    }
    (void)pinned_forget(address);
    return ACL_SUCCESS;
}

aclError sim_aclrtFreeHost(void *hostPtr)
{
    REQUIRE(hostPtr);
    return host_free(__func__, hostPtr);
}

aclError sim_aclrtFreeHostWithDevSync(void *hostPtr)
{
    REQUIRE(hostPtr);
    TRY(sim_aclrtSynchronizeDevice());
    return host_free(__func__, hostPtr);
}

/* ---- registered ----------------------------------------------------------------- */
static aclError host_register(const char *function, void *address, size_t bytes, int32_t device,
                              uint32_t flags)
{
    Range range = {.begin = (uintptr_t)address, .end = (uintptr_t)address + bytes,
                   .kind = RANGE_REGISTERED, .device = device, .flags = flags};
    Range other = {0};
    if (range.end < range.begin) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
                         "ptr = %p, size = %zu: the range wraps around", address, bytes);
    }
    if (!range_add(&range, &other)) {
        return error_set(function, ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                         "ptr = %p, size = %zu: overlaps the range %p to %p, which is already registered or allocated",
                         address, bytes, (void *)other.begin, (void *)other.end);
    }
    return ACL_SUCCESS;
}

/* Pinned memory that the program has registered. Devices can use any pinned memory, but the program can
 * get the device address of pinned memory only while it is registered. */
typedef struct Pinned {
    struct Pinned *next;
    const void *address;
    size_t bytes;
} Pinned;

FILE_LOCK(pinned_lock);
static Pinned *pinned;

static bool memory_is_of_malloc_host(const void *address, size_t bytes)
{
    Memory memory;
    memory_find(address, &memory);
    uintptr_t end;
    return memory.kind == MEMORY_HOST && !__builtin_add_overflow((uintptr_t)address, bytes, &end) &&
           end <= memory.base + memory.bytes;
}

/* Returns the address of the pointer to the entry of that address; if there is none, of the NULL at the list's end. The
 * lock is held. */
static Pinned **pinned_find(const void *address)
{
    Pinned **link = &pinned;
    while (*link != NULL && (*link)->address != address) {
        link = &(*link)->next;
    }
    return link;
}

/* True if the address is in pinned memory that was registered. */
static bool pinned_is_mapped(const void *address)
{
    pthread_mutex_lock(&pinned_lock);
    const Pinned *one = pinned;
    while (one != NULL && (uintptr_t)address - (uintptr_t)one->address >= one->bytes) {
        one = one->next;
    }
    pthread_mutex_unlock(&pinned_lock);
    return one != NULL;
}

static aclError pinned_register(const char *function, const void *address, size_t bytes)
{
    Pinned *made = malloc(sizeof *made);
    if (made == NULL) {
        return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "no host memory");
    }
    pthread_mutex_lock(&pinned_lock);
    Pinned **link = pinned_find(address);
    bool known = *link != NULL;
    if (!known) {
        *made = (Pinned){.address = address, .bytes = bytes};
        *link = made;
    }
    pthread_mutex_unlock(&pinned_lock);
    if (known) {
        free(made);
        return error_set(function, ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
                         "ptr = %p is registered already", address);
    }
    return ACL_SUCCESS;
}

static bool pinned_forget(const void *address)
{
    pthread_mutex_lock(&pinned_lock);
    Pinned **link = pinned_find(address), *found = *link;
    if (found != NULL) {
        *link = found->next;
    }
    pthread_mutex_unlock(&pinned_lock);
    free(found);
    return found != NULL;
}

/* True if exactly this range is registered. To register a range twice is allowed. */
static bool host_is_registered(const void *address, size_t bytes)
{
    Range range;
    uintptr_t at = (uintptr_t)address;
    return range_find(at, &range) && range.kind == RANGE_REGISTERED && range.begin == at &&
           range.end - range.begin == bytes;
}

aclError sim_aclrtHostRegister(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr)
{
    static const unsigned known = ACL_HOST_REGISTER_IOMEMORY | ACL_HOST_REGISTER_READONLY;
    REQUIRE(ptr);
    REQUIRE(devPtr);
    REQUIRE(size > 0);
    if (((unsigned)type & ~known) != 0) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "type = %d: expected ACL_HOST_REGISTER_MAPPED, IOMEMORY or READONLY",
                    (int)type);
    }
    Context *context;
    TRY(context_require(&context));
    if (!host_is_registered(ptr, size)) {
        TRY(host_register(__func__, ptr, size, context->device, ACL_HOST_REG_MAPPED));
    }
    *devPtr = ptr;
    return ACL_SUCCESS;
}

aclError sim_aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag)
{
    static const uint32_t known = ACL_HOST_REG_MAPPED | ACL_HOST_REG_IOMEMORY |
                                  ACL_HOST_REG_READONLY | ACL_HOST_REG_PINNED;
    REQUIRE(ptr);
    REQUIRE(size > 0);
    if (flag == 0 || (flag & ~known) != 0) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "flag = 0x%x: expected some of ACL_HOST_REG_* (0x%x)", flag, known);
    }
    Context *context;
    TRY(context_require(&context));
    if ((flag & ACL_HOST_REG_MAPPED) != 0 && memory_is_of_malloc_host(ptr, size)) {
        return pinned_register(__func__, ptr, size);
    }
    return host_register(__func__, ptr, size, context->device, flag);
}

aclError sim_aclrtHostUnregister(void *ptr)
{
    REQUIRE(ptr);
    Context *context;
    TRY(context_require(&context));
    if (!pinned_forget(ptr) && !range_remove((uintptr_t)ptr, RANGE_REGISTERED, NULL)) {
        return fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED,
                    "ptr = %p is not the beginning of registered memory", ptr);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtHostGetDevicePointer(void *pHost, void **pDevice, uint32_t flag)
{
    REQUIRE(pHost);
    REQUIRE(pDevice);
    REQUIRE(flag == 0);
    Context *context;
    TRY(context_require(&context));
    Memory memory;
    memory_find(pHost, &memory);
    Range range;
    bool mapped = memory.kind == MEMORY_REGISTERED && range_find((uintptr_t)pHost, &range) &&
                  (range.flags & ACL_HOST_REG_MAPPED) != 0;
    if (!mapped && memory.kind != MEMORY_MANAGED && !pinned_is_mapped(pHost)) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
                    "pHost = %p is not registered with ACL_HOST_REG_MAPPED", pHost);
    }
    *pDevice = pHost;
    return ACL_SUCCESS;
}
