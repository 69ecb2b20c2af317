/* core_group.c: computing-power groups: a chip has one group with all its cores, or no groups.

   The group has the number 0.  On a chip without groups each call returns 207000, as with the
   runtime.  There is no state and no lock. */
#include <string.h>

#include "base/core.h"
#include "generated/exports.h"
#include "base/soc.h"

/* The attributes of a group, in the order of aclrtGroupAttr. */
struct tagRtGroupInfo {
    int32_t values[ACL_GROUP_GROUPID_INT + 1];
};

enum { GROUPS = 1, COPY_ENGINES = 10, ACTIVE_STREAMS = 48 };

static aclError groups_require(const char *function)
{
    if (!soc_current()->has_groups) {
        return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                         "%s is not divided into groups", config.soc);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtSetGroup(int32_t groupId)
{
    Context *context;
    TRY(groups_require(__func__));
    TRY(context_require(&context));
    REQUIRE_RT(groupId >= 0 && groupId < GROUPS);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetGroupCount(uint32_t *count)
{
    Context *context;
    REQUIRE(count);
    TRY(groups_require(__func__));
    TRY(context_require(&context));
    *count = GROUPS;
    return ACL_SUCCESS;
}

aclrtGroupInfo *sim_aclrtCreateGroupInfo(void)
{
    Context *context;
    if (groups_require(__func__) != ACL_SUCCESS || context_require(&context) != ACL_SUCCESS) {
        return NULL;
    }
    return handle_new(HANDLE_GROUP_INFO, sizeof(aclrtGroupInfo));
}

aclError sim_aclrtDestroyGroupInfo(aclrtGroupInfo *groupInfo)
{
    REQUIRE(groupInfo);
    REQUIRE(handle_is(groupInfo, HANDLE_GROUP_INFO));
    handle_retire(groupInfo);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetAllGroupInfo(aclrtGroupInfo *groupInfo)
{
    Context *context;
    REQUIRE(groupInfo);
    TRY(groups_require(__func__));
    TRY(context_require(&context));
    REQUIRE(handle_is(groupInfo, HANDLE_GROUP_INFO));
    const Soc *soc = soc_current();
    *groupInfo = (aclrtGroupInfo){.values = {
        [ACL_GROUP_AICORE_INT] = (int32_t)soc->ai_cores,
        [ACL_GROUP_AIV_INT] = (int32_t)soc->vector_cores,
        [ACL_GROUP_AIC_INT] = (int32_t)soc->ai_cpus,
        [ACL_GROUP_SDMANUM_INT] = COPY_ENGINES,
        [ACL_GROUP_ASQNUM_INT] = ACTIVE_STREAMS,
        [ACL_GROUP_GROUPID_INT] = 0,
    }};
    return ACL_SUCCESS;
}

aclError sim_aclrtGetGroupInfoDetail(const aclrtGroupInfo *groupInfo, int32_t groupIndex,
    aclrtGroupAttr attr, void *attrValue, size_t valueLen, size_t *paramRetSize)
{
    REQUIRE(groupInfo);
    REQUIRE(attrValue);
    REQUIRE(paramRetSize);
    TRY(groups_require(__func__));
    REQUIRE(handle_is(groupInfo, HANDLE_GROUP_INFO));
    REQUIRE(groupIndex >= 0 && groupIndex < GROUPS);
    REQUIRE((unsigned)attr <= ACL_GROUP_GROUPID_INT);
    REQUIRE(valueLen >= sizeof groupInfo->values[0]);
    memcpy(attrValue, &groupInfo->values[attr], sizeof groupInfo->values[0]);
    *paramRetSize = sizeof groupInfo->values[0];
    return ACL_SUCCESS;
}
