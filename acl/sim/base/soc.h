/* soc.h: the properties in which chips differ.

   One constant row per chip; the configuration selects the row. Everything that depends on the
   chip (padding, kinds of memory, numbers of cores, missing features) is read here and nowhere
   else. The rows are read-only, so no thread rule applies. */
#ifndef SIM_SOC_H
#define SIM_SOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How two devices of one host are connected, as aclrtGetDevicesTopo reports it. */
typedef enum SocLink {
    SOC_LINK_HCCS = 0x01,
    SOC_LINK_PIX = 0x02,
    SOC_LINK_SIO = 0x20,
} SocLink;

typedef struct Soc {
    const char *name;         /* the name in aclrtGetSocName and in the configuration */
    const char *family;       /* the short name; chips of one family can run the same programs */
    int32_t architecture;     /* number of the instruction set, as ACL_DEV_ATTR_NPU_ARCH gives it */
    size_t padding;           /* bytes that aclrtMalloc adds to a request: 32 or 0 */
    uint32_t ai_cores;
    uint32_t cube_cores;      /* 0: the chip does not report it */
    uint32_t vector_cores;
    uint32_t ai_cpus;
    uint64_t l2_size;         /* bytes of the L2 cache */
    uint64_t memory_size;     /* bytes of the real chip's memory, for aclplatformGetDeviceInfo only; the simulated
                                 devices have config.capacity */
    uint32_t streams;         /* the most streams of one device, default streams included */
    SocLink link;             /* connection to the neighbouring device of the same card or board */
    bool has_hbm;             /* false: the chip has only DDR, and memory attributes of HBM stand for DDR */
    bool has_huge1g;          /* the chip has pages of 1 GiB */
    bool has_virtual_memory;  /* aclrtReserveMemAddress and the other calls for virtual memory work */
    bool has_allocator;       /* aclrtAllocatorRegister works */
    bool has_peer_access;
    bool has_ipc_event;
    bool has_random;          /* aclrtRandomNumAsync works: the chip has a unit for it */
    bool has_groups;          /* aclrtGetGroupCount and the other calls for computing-power groups work */
    bool has_inf_nan;         /* ACL_RT_OVERFLOW_MODE_INFNAN can be switched on */
    bool has_bf16;
    bool compiles_at_run;     /* the default of ACL_CANN_ATTR_JIT_COMPILE is on */
} Soc;

/* Returns the row of the configured chip. */
const Soc *soc_current(void);

/* Returns the row of the chip `name`; else a row of the same family (for Ascend910B3 that of Ascend910B1), or NULL. */
const Soc *soc_find(const char *name);

/* Returns the name of a row, in the table's order; NULL after the last. */
const char *soc_name_at(size_t index);

#endif
