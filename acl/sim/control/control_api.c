/* control_api.c: the part of the control API for settings, counters and handles.

   Thread rule: counters and handle counts are read without locks, so two counts that are read one after
   the other may be from different moments. */
#include "control/control_api.h"
#include "memory/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "streams/device.h"
#include "generated/exports.h"
#include "base/soc.h"
#include "ops/op.h"

/* Settings that config.c reads: acl_sim_set stores them and reads the whole configuration anew. */
static const char *const configured[] = {
    "ACL_SIM_DEVICES", "ACL_SIM_MEMORY",     "ACL_SIM_SOC",
    "ACL_SIM_VERSION", "ACL_SIM_STRICT",     "ACL_SIM_STRICT_ALLOCATORS",
    "ACL_SIM_ALLOCATORS", "ACL_SIM_DEVICE_CODE", "ACL_SIM_REUSE_HANDLES", "ACL_SIM_PINNED",
};

static bool is_configured(const char *variable)
{
    for (size_t i = 0; i < sizeof configured / sizeof configured[0]; i++) {
        if (strcmp(configured[i], variable) == 0) {
            return true;
        }
    }
    return false;
}

aclError acl_sim_set(const char *variable, const char *value)
{
    REQUIRE(variable);
    REQUIRE(value);
    if (strcmp(variable, "ACL_SIM_TRACE") == 0) {
        return trace_open(value, true);
    }
    if (strcmp(variable, "ACL_SIM_LATENCY") == 0) {
        return latency_choose(value);
    }
    if (!is_configured(variable)) {
        return fail(ACL_ERROR_INVALID_PARAM, "there is no setting %.64s", variable);
    }
    if (devices_in_use()) {
        return fail(ACL_ERROR_RELATIVE_RESOURCE_NOT_CLEARED,
                    "%s can be set only while no device is in use", variable);
    }
    TRY(setting_change(variable, value));
    memory_config_changed();
    return ACL_SUCCESS;
}

static size_t capacity_tell(char *value, size_t size)
{
    char sizes[DEVICE_MAX * 24] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < config.devices; i++) {
        used += (size_t)snprintf(sizes + used, sizeof sizes - used, "%s%zu", i ? "," : "",
                                 config.capacity[i]);
    }
    return (size_t)snprintf(value, size, "%s", sizes);
}

size_t acl_sim_get(const char *variable, char *value, size_t size)
{
    const struct {
        const char *variable;
        bool set;
    } flags[] = {
        {"ACL_SIM_STRICT", config.strict},
        {"ACL_SIM_STRICT_ALLOCATORS", config.strict_allocators},
        {"ACL_SIM_ALLOCATORS", config.allocators},
        {"ACL_SIM_REUSE_HANDLES", config.reuse_handles},
    };
    const struct {
        const char *variable, *text;
    } texts[] = {
        {"ACL_SIM_SOC", config.soc},
        {"ACL_SIM_VERSION", config.version},
        {"ACL_SIM_DEVICE_CODE", config.device_code == DEVICE_CODE_SKIP ? "skip" : "refuse"},
    };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(variable, flags[i].variable) == 0) {
            return (size_t)snprintf(value, size, "%d", flags[i].set);
        }
    }
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(variable, texts[i].variable) == 0) {
            return (size_t)snprintf(value, size, "%s", texts[i].text);
        }
    }
    if (strcmp(variable, "ACL_SIM_DEVICES") == 0) {
        return (size_t)snprintf(value, size, "%u", config.devices);
    }
    if (strcmp(variable, "ACL_SIM_LATENCY") == 0) {
        return latency_chosen(value, size);
    }
    if (strcmp(variable, "ACL_SIM_PINNED") == 0) {
        return config.pinned == SIZE_MAX ? (size_t)snprintf(value, size, "unlimited")
                                         : (size_t)snprintf(value, size, "%zu", config.pinned);
    }
    return strcmp(variable, "ACL_SIM_MEMORY") == 0 ? capacity_tell(value, size) : 0;
}

const char *acl_sim_message(void)
{
    return error_peek();
}

const char *acl_sim_kind(size_t index)
{
    return index < HANDLE_KINDS ? handle_kind_name((HandleKind)index) : NULL;
}

size_t acl_sim_live(size_t index)
{
    return index < HANDLE_KINDS ? handle_live((HandleKind)index) : 0;
}

const char *acl_sim_operator(size_t index, uint32_t *domains)
{
    const OpKind *kind = op_at(index);
    if (kind == NULL) {
        return NULL;
    }
    *domains = (uint32_t)kind->domain;
    return kind->name;
}

const char *acl_sim_soc(size_t index)
{
    return soc_name_at(index);
}
