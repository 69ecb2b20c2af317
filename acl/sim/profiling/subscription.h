/* subscription.h: subscriptions to a model's operators (aclprofModelSubscribe). */
#ifndef SIM_SUBSCRIPTION_H
#define SIM_SUBSCRIPTION_H

#include "acl/acl_prof.h"
#include "base/core.h"

/* One run of an operator, as the kernel reports it. */
typedef struct OpRun {
    uint32_t model;
    const char *type, *name;
    aclprofSubscribeOpFlag flag;
    uint32_t device;
    int64_t begin_ns, end_ns;
} OpRun;

extern atomic_uint subscription_count;
/* Returns true if a model has this id. models/model.c sets the pointer when the library is loaded. */
extern bool (*subscription_model_exists)(uint32_t id);

/* True if any model has a subscription, so that kernels must report their runs. */
static inline bool subscription_any(void)
{
    return atomic_load_explicit(&subscription_count, memory_order_relaxed) != 0;
}

/* Reports the run to the model's subscription. Never waits for a reader. */
void subscription_tell(const OpRun *run);

/* In profiler.c: true if aclprofInit was called. A subscription and aclprofInit exclude each other. */
bool profiler_initialised(void);

#endif
