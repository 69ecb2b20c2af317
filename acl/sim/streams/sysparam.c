/* sysparam.c: run-time parameters of the process and of a context, and the operators' timeouts.

   The simulator stores and returns them; only the timeout of a stream's wait for an event has an effect.
   Operators are deterministic with any setting.

   Thread rule: all state is atomic; a context's parameters are stored in the context. */
#include "base/core.h"
#include "generated/exports.h"

enum { PARAMETERS = 4, PARAMETERS_OF_CONTEXT = 3, DETERMINISTIC_LEVELS = 4 };

/* A context's slot holds the value with its sign bit flipped; so the zero in a new context means
   "never set". */
#define UNSET_FLIP INT64_MIN

static _Atomic int64_t process_values[PARAMETERS];

static bool value_fits(aclSysParamOpt opt, int64_t value)
{
    return value >= 0 && value < (opt == ACL_OPT_DETERMINISTIC ? DETERMINISTIC_LEVELS : 2);
}

aclError sim_aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value)
{
    REQUIRE((unsigned)opt < PARAMETERS);
    REQUIRE_RT(value_fits(opt, value));
    atomic_store(&process_values[opt], value);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value)
{
    REQUIRE(value);
    REQUIRE((unsigned)opt < PARAMETERS);
    *value = atomic_load(&process_values[opt]);
    return ACL_SUCCESS;
}

aclError sim_aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value)
{
    Context *context;
    REQUIRE((unsigned)opt < PARAMETERS_OF_CONTEXT);
    REQUIRE_RT(value_fits(opt, value));
    TRY(context_require(&context));
    atomic_store(&context->sys_params[opt], value ^ UNSET_FLIP);
    return ACL_SUCCESS;
}

aclError sim_aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value)
{
    Context *context;
    REQUIRE(value);
    REQUIRE((unsigned)opt < PARAMETERS_OF_CONTEXT);
    TRY(context_require(&context));
    int64_t kept = atomic_load(&context->sys_params[opt]);
    if (kept == 0) {
        return fail_quiet(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET,
                          "parameter %d was never set in this context", (int)opt);
    }
    *value = kept ^ UNSET_FLIP;
    return ACL_SUCCESS;
}

/* ---- timeouts -------------------------------------------------------------------------------- */

/* The device's scheduler counts in steps: a timeout is rounded up to whole steps, and is at most
   STEPS_MAX steps. */
enum { STEP_US = 1048576, STEPS_MAX = 254 };

static _Atomic uint64_t execute_timeout_us = (uint64_t)STEP_US * STEPS_MAX;
static _Atomic uint32_t wait_timeout_s;

/* Returns the timeout in whole steps of the scheduler; a timeout of 0 means the longest possible one. */
static uint64_t timeout_rounded(uint64_t timeout_us)
{
    const uint64_t most = (uint64_t)STEP_US * STEPS_MAX;
    if (timeout_us == 0 || timeout_us > most) {
        return most;
    }
    return (timeout_us + STEP_US - 1) / STEP_US * STEP_US;
}

/* Setting a timeout, here and in the calls below, needs no context; reading a timeout does. */
static aclError execute_timeout_set(uint64_t timeout_us)
{
    atomic_store(&execute_timeout_us, timeout_rounded(timeout_us));
    return ACL_SUCCESS;
}

aclError sim_aclrtSetOpExecuteTimeOut(uint32_t timeout)
{
    return execute_timeout_set((uint64_t)timeout * 1000000);
}

aclError sim_aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout)
{
    return execute_timeout_set((uint64_t)timeout * 1000);
}

aclError sim_aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actualTimeout)
{
    REQUIRE(actualTimeout);
    TRY(execute_timeout_set(timeout));
    *actualTimeout = atomic_load(&execute_timeout_us);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetOpExecuteTimeout(uint32_t *const timeoutMs)
{
    Context *context;
    REQUIRE(timeoutMs);
    TRY(context_require(&context));
    *timeoutMs = (uint32_t)((atomic_load(&execute_timeout_us) + 999) / 1000);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetOpTimeOutInterval(uint64_t *interval)
{
    Context *context;
    REQUIRE(interval);
    TRY(context_require(&context));
    *interval = STEP_US;
    return ACL_SUCCESS;
}

uint32_t op_wait_timeout_s(void)
{
    return atomic_load_explicit(&wait_timeout_s, memory_order_relaxed);
}

aclError sim_aclrtSetOpWaitTimeout(uint32_t timeout)
{
    atomic_store(&wait_timeout_s, timeout);
    return ACL_SUCCESS;
}
