/* soc.h: what differs from one chip to the next.

   One constant row per chip; the configuration names the row.  Everything that depends on the chip
   (padding, kinds of memory, counts of cores, features that the chip lacks) asks here and nowhere
   else.  The rows are read-only, so no thread rule applies. */
#ifndef SIM_SOC_H
#define SIM_SOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How two devices of one host are connected, as aclrtGetDevicesTopo tells it. */
typedef enum SocLink {
    SOC_LINK_HCCS = 0x01,
    SOC_LINK_PIX = 0x02,
    SOC_LINK_SIO = 0x20,
} SocLink;

typedef struct Soc {
    const char *name;         /* as aclrtGetSocName and the configuration spell it */
    const char *family;       /* the short name: chips of one family run each other's programs */
    int32_t architecture;     /* ACL_DEV_ATTR_NPU_ARCH */
    size_t padding;           /* bytes that aclrtMalloc adds to a request: 32 or 0 */
    uint32_t ai_cores;
    uint32_t cube_cores;      /* 0: the chip does not tell */
    uint32_t vector_cores;
    uint32_t ai_cpus;
    uint64_t l2_size;         /* bytes */
    uint64_t memory_size;     /* bytes of the real chip; the configured capacity wins */
    SocLink link;             /* to the neighbouring device of the same card or board */
    bool has_hbm;             /* false: DDR only, and HBM attributes mean DDR */
    bool has_huge1g;          /* pages of 1 GiB */
    bool has_virtual_memory;  /* aclrtReserveMemAddress and the rest of its group */
    bool has_allocator;       /* aclrtAllocatorRegister */
    bool has_peer_access;
    bool has_ipc_event;
    bool has_random;          /* aclrtRandomNumAsync: a unit of its own on the chip */
    bool has_groups;          /* aclrtGetGroupCount and the rest of its group */
    bool has_inf_nan;         /* ACL_RT_OVERFLOW_MODE_INFNAN can be switched on */
    bool has_bf16;
    bool compiles_at_run;     /* ACL_CANN_ATTR_JIT_COMPILE is the default */
} Soc;

/* The row of the configured chip. */
const Soc *soc_current(void);

/* The row of that name, else that of its family (Ascend910B3 is served as Ascend910B1), or NULL. */
const Soc *soc_find(const char *name);

/* The names of all rows, in the table's order; ends with NULL. */
const char *soc_name_at(size_t index);

#endif
