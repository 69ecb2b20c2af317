/* environment.c: applies the ACL_SIM_* variables that this folder implements, and reports variables without effect.

   A variable that the simulator does not know, and a rule of ACL_SIM_FAULTS that made no call fail, are
   reported on standard error: with a misspelt variable or function, a test of failures would pass.

   Thread rule: runs only when the library is loaded and at the end of the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/control_api.h"
#include "generated/exports.h"

extern char **environ;

static const char *const variables[] = {
    "ACL_SIM_ALLOCATORS", "ACL_SIM_CHECK", "ACL_SIM_CHECK_JSON", "ACL_SIM_CHECK_TEXT", "ACL_SIM_COUNTERS",
    "ACL_SIM_COVERAGE", "ACL_SIM_DEVICES", "ACL_SIM_DEVICE_CODE", "ACL_SIM_ENGINE", "ACL_SIM_FAULTS",
    "ACL_SIM_LATENCY", "ACL_SIM_LOOP_TURNS", "ACL_SIM_MEMORY", "ACL_SIM_ONNXRUNTIME", "ACL_SIM_PINNED",
    "ACL_SIM_RACES", "ACL_SIM_RACES_FAIL", "ACL_SIM_RACES_JSON", "ACL_SIM_REUSE_HANDLES", "ACL_SIM_SHARED", "ACL_SIM_SOC",
    "ACL_SIM_STRICT", "ACL_SIM_STRICT_ALLOCATORS", "ACL_SIM_THREADS", "ACL_SIM_TRACE", "ACL_SIM_VERSION",
};
enum { VARIABLES = sizeof variables / sizeof variables[0] };

const char *acl_sim_variable(size_t index)
{
    return index < VARIABLES ? variables[index] : NULL;
}

static bool is_variable(const char *name, size_t length)
{
    for (size_t i = 0; i < VARIABLES; i++) {
        if (strlen(variables[i]) == length && strncmp(variables[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

static void unknown_tell(void)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "ACL_SIM_", 8) == 0 && !is_variable(*entry, length)) {
            fprintf(stderr, "acl.sim: %.*s is not a variable of the simulator and has no effect; "
                    "docs/simulator.md lists them\n", (int)length, *entry);
        }
    }
}

static void complain(const char *variable)
{
    fprintf(stderr, "acl.sim: %s: %s", variable, sim_aclGetRecentErrMsg());
}

/* The rules set by ACL_SIM_FAULTS, kept for the report at the end of the process. */
enum { ORDERED_MAX = 64, RULES_TEXT = 4096 };
static char ordered_text[RULES_TEXT];
static struct {
    const char *text;
    uint32_t number;
} ordered[ORDERED_MAX];
static size_t ordered_count;

static void faults_from_environment(void)
{
    const char *text = getenv("ACL_SIM_FAULTS");
    uint32_t number;
    if (text == NULL || *text == '\0') {
        return;
    }
    if (strlen(text) >= sizeof ordered_text) {
        fprintf(stderr, "acl.sim: ACL_SIM_FAULTS: only the first %d bytes are read\n", RULES_TEXT - 1);
    }
    snprintf(ordered_text, sizeof ordered_text, "%s", text);
    char *rest = NULL;
    for (char *rule = strtok_r(ordered_text, ",", &rest); rule != NULL; rule = strtok_r(NULL, ",", &rest)) {
        if (acl_sim_fault_add(rule, &number) != ACL_SUCCESS) {
            complain("ACL_SIM_FAULTS");
        } else if (ordered_count < ORDERED_MAX) {
            ordered[ordered_count].text = rule;
            ordered[ordered_count++].number = number;
        }
    }
}

/* True if any function of the library was called. A process that called none does not report rules without effect. */
static bool was_called(void)
{
    for (size_t i = 0; i < FN_COUNT; i++) {
        if (acl_sim_calls(i) != 0) {
            return true;
        }
    }
    return false;
}

static uint64_t calls_of(const char *rule)
{
    size_t length = strcspn(rule, ":");
    for (size_t i = 0; i < FN_COUNT; i++) {
        if (strlen(function_names[i]) == length && strncmp(function_names[i], rule, length) == 0) {
            return acl_sim_calls(i);
        }
    }
    return 0;
}

__attribute__((destructor)) static void unused_tell(void)
{
    for (size_t i = 0; was_called() && i < ordered_count; i++) {
        const char *rule = ordered[i].text;
        if (acl_sim_fault_hits(ordered[i].number) != 0 || !fault_in_force(ordered[i].number)) {
            continue; /* the rule made a call fail, or the program removed it */
        }
        if (strncmp(rule, "device", 6) == 0 || *rule == '*') {
            fprintf(stderr, "acl.sim: ACL_SIM_FAULTS: %s made no call fail\n", rule);
        } else {
            fprintf(stderr, "acl.sim: ACL_SIM_FAULTS: %s made no call fail; calls of %.*s: %llu\n", rule,
                    (int)strcspn(rule, ":"), rule, (unsigned long long)calls_of(rule));
        }
    }
}

__attribute__((constructor(105))) static void environment_apply(void)
{
    const char *trace = getenv("ACL_SIM_TRACE");
    const char *latency = getenv("ACL_SIM_LATENCY");
    unknown_tell();
    faults_from_environment();
    if (trace != NULL && *trace != '\0' && trace_open(trace, false) != ACL_SUCCESS) {
        complain("ACL_SIM_TRACE");
    }
    if (latency != NULL && *latency != '\0' && latency_choose(latency) != ACL_SUCCESS) {
        complain("ACL_SIM_LATENCY");
    }
}
