/* soc.c: the table of chips.

   The numbers are from the published specifications: CANN's platform configuration of August 2026
   and the support tables of its documentation. The numbers of streams are those of the documentation
   of CANN 8.0, because they became smaller on some chips later. Two rows are included for tests of
   missing features: Ascend310B1 refuses to register an allocator, and Ascend910A has no virtual memory. */
#include "base/soc.h"

#include <string.h>

#include "base/core.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

static const Soc socs[] = {
    {
        .name = "Ascend910B1", .family = "Ascend910B", .architecture = 2201, .padding = 32,
        .ai_cores = 24, .cube_cores = 24, .vector_cores = 48, .ai_cpus = 6,
        .streams = 2048, .l2_size = 192 * MIB, .memory_size = 64 * GIB, .link = SOC_LINK_HCCS,
        .has_hbm = true, .has_huge1g = true, .has_virtual_memory = true, .has_allocator = true,
        .has_peer_access = true, .has_ipc_event = true, .has_random = true,
        .has_inf_nan = true, .has_bf16 = true, .has_groups = true,
    },
    {
        .name = "Ascend910_9391", .family = "Ascend910_93", .architecture = 2201, .padding = 32,
        .ai_cores = 24, .cube_cores = 24, .vector_cores = 48, .ai_cpus = 6,
        .streams = 2048, .l2_size = 192 * MIB, .memory_size = 64 * GIB, .link = SOC_LINK_SIO,
        .has_hbm = true, .has_huge1g = true, .has_virtual_memory = true, .has_allocator = true,
        .has_peer_access = true, .has_ipc_event = true, .has_random = true,
        .has_inf_nan = true, .has_bf16 = true, .has_groups = true,
    },
    {
        .name = "Ascend310P3", .family = "Ascend310P", .architecture = 2002, .padding = 32,
        .ai_cores = 8, .cube_cores = 0, .vector_cores = 7, .ai_cpus = 7,
        .streams = 1024, .l2_size = 16 * MIB, .memory_size = 24000000000, .link = SOC_LINK_PIX,
        .has_virtual_memory = true, .has_allocator = true, .has_peer_access = true,
        .compiles_at_run = true, .has_groups = true,
    },
    {
        .name = "Ascend310B1", .family = "Ascend310B", .architecture = 3002, .padding = 32,
        .ai_cores = 1, .cube_cores = 1, .vector_cores = 1, .ai_cpus = 4,
        .streams = 512, .l2_size = 4 * MIB, .memory_size = 32 * GIB, .link = SOC_LINK_PIX,
        .has_virtual_memory = true, .has_allocator = false, .has_groups = true,
    },
    {
        .name = "Ascend910A", .family = "Ascend910", .architecture = 1001, .padding = 32,
        .ai_cores = 32, .cube_cores = 0, .vector_cores = 0, .ai_cpus = 14,
        .streams = 2048, .l2_size = 32 * MIB, .memory_size = 32 * GIB, .link = SOC_LINK_HCCS,
        .has_hbm = true, .has_virtual_memory = false, .has_allocator = true,
        .has_peer_access = true, .compiles_at_run = true,
    },
    {
        .name = "Ascend950PR_9599", .family = "Ascend950", .architecture = 3510, .padding = 0,
        .ai_cores = 36, .cube_cores = 36, .vector_cores = 72, .ai_cpus = 8,
        .streams = 2048, .l2_size = 128 * MIB, .memory_size = 128 * GIB, .link = SOC_LINK_HCCS,
        .has_hbm = true, .has_huge1g = true, .has_virtual_memory = true, .has_allocator = true,
        .has_peer_access = true, .has_ipc_event = true, .has_random = true,
        .has_inf_nan = true, .has_bf16 = true, .has_groups = true,
    },
};

#define SOC_COUNT (sizeof socs / sizeof socs[0])

const Soc *soc_find(const char *name)
{
    const Soc *found = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < SOC_COUNT; i++) {
        size_t length = strlen(socs[i].family);
        if (strcmp(socs[i].name, name) == 0) {
            return &socs[i];
        }
        if (length > longest && strncmp(socs[i].family, name, length) == 0) {
            found = &socs[i];
            longest = length;
        }
    }
    return found;
}

const char *soc_name_at(size_t index)
{
    return index < SOC_COUNT ? socs[index].name : NULL;
}

const Soc *soc_current(void)
{
    const Soc *soc = soc_find(config.soc);
    return soc != NULL ? soc : &socs[0];
}
