/* fuzz_text.c: passes texts of unknown origin to aclInit as its JSON, and to the simulator as its settings. */
#include "fuzz.h"

#include "control/control_api.h"
#include "base/json.h"

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static const char *const outer[] = {"a", NULL}, *const inner[] = {"a", "b", NULL};
    uint32_t rule;
    char value[16];
    char *text = malloc(length + 1);
    if (text == NULL) {
        return 0;
    }
    memcpy(text, bytes, length);
    text[length] = '\0';
    bool valid = json_is_valid(text);
    bool found = json_find(text, outer, value, sizeof value) != JSON_ABSENT;
    found |= json_find(text, inner, value, sizeof value) != JSON_ABSENT;
    if (found && !valid) {
        abort();
    }
    if (acl_sim_fault_add(text, &rule) == ACL_SUCCESS) {
        must(acl_sim_fault_remove(rule));
    }
    free(text);
    return 0;
}
