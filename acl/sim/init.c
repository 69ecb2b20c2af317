/* aclInit and aclFinalize.
 *
 * Thread rule: `lock` guards the state; callbacks run outside it. */
#include "device.h"
#include "exports.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t references;

aclError sim_aclInit(const char *configPath)
{
    (void)configPath;
    if (config.problem[0] != '\0') {
        return fail(ACL_ERROR_INVALID_PARAM, "%s", config.problem);
    }
    pthread_mutex_lock(&lock);
    uint64_t before = references++;
    pthread_mutex_unlock(&lock);
    return before == 0 ? ACL_SUCCESS : ACL_ERROR_REPEAT_INITIALIZE;
}

aclError sim_aclFinalize(void)
{
    pthread_mutex_lock(&lock);
    uint64_t before = references;
    references = 0;
    pthread_mutex_unlock(&lock);
    if (before == 0) {
        return fail(ACL_ERROR_REPEAT_FINALIZE, "aclInit was not called");
    }
    return ACL_SUCCESS;
}

bool acl_initialised(void)
{
    pthread_mutex_lock(&lock);
    bool initialised = references != 0;
    pthread_mutex_unlock(&lock);
    return initialised;
}
