/* The gate: what each exported call does before and after its own work (counters, trace, checks, faults, latency).
 *
 * Thread rule: any thread; the counters are relaxed atomics. */
#include "base/core.h"
#include "check/checker.h"
#include "control/control_api.h"
#include "generated/exports.h"

atomic_ullong gate_calls[FN_COUNT + 1];

/* Runs after check_start (constructor 105), which has read ACL_SIM_CHECK. */
__attribute__((constructor(107))) static void checker_follow(void)
{
    if (check_on(CHECK_ANY)) {
        atomic_fetch_or(&gate_watch, GATE_CHECK);
    }
}

aclError gate_enter_watched(unsigned function)
{
    unsigned watch = atomic_load(&gate_watch);
    if (watch & GATE_TRACE) {
        trace_begin(function);
    }
    if (watch & GATE_CHECK) {
        check_entered(function);
    }
    if (watch & GATE_FORKED) {
        return error_set(function_names[function], ACL_ERROR_RT_INTERNAL_ERROR,
                         "this process was forked from one that uses the devices; "
                         "use them in the parent, or only in the child");
    }
    if (watch & GATE_LATENCY) {
        latency_wait(function);
    }
    return watch & GATE_FAULTS ? fault_due(function) : ACL_SUCCESS;
}

aclError gate_leave_watched(unsigned function, aclError status)
{
    unsigned watch = atomic_load(&gate_watch);
    if (watch & GATE_COVERAGE) {
        coverage_count(function, status);
    }
    if (watch & GATE_TRACE) {
        trace_write(function, status);
    }
    return status;
}

aclError acl_sim_gate_enter(unsigned function)
{
    return gate_enter(function);
}

aclError acl_sim_gate_leave(unsigned function, aclError status)
{
    return gate_leave(function, status);
}

bool acl_sim_gate_tells(aclError status)
{
    return gate_tells(status);
}

aclError acl_sim_unsupported(const char *function)
{
    return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                     "the simulator does not implement %s", function);
}
