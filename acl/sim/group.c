/* group.c: computing-power groups, which none of the simulated chips has.

   The runtime of these chips exports the calls and refuses them, and so does this file: counting or
   choosing groups is 207000, and there is no group to describe. */
#include "core.h"
#include "exports.h"

static aclError refuse(const char *function)
{
    return error_set(function, ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                     "%s is not divided into groups", config.soc);
}

aclError sim_aclrtSetGroup(int32_t groupId)
{
    (void)groupId;
    return refuse(__func__);
}

aclError sim_aclrtGetGroupCount(uint32_t *count)
{
    REQUIRE(count);
    return refuse(__func__);
}

aclrtGroupInfo *sim_aclrtCreateGroupInfo(void)
{
    (void)refuse(__func__);
    return NULL;
}

aclError sim_aclrtDestroyGroupInfo(aclrtGroupInfo *groupInfo)
{
    REQUIRE(groupInfo);
    return fail(ACL_ERROR_INVALID_PARAM, "groupInfo %p is not from aclrtCreateGroupInfo",
                (void *)groupInfo);
}

aclError sim_aclrtGetAllGroupInfo(aclrtGroupInfo *groupInfo)
{
    REQUIRE(groupInfo);
    return refuse(__func__);
}

aclError sim_aclrtGetGroupInfoDetail(const aclrtGroupInfo *groupInfo, int32_t groupIndex,
    aclrtGroupAttr attr, void *attrValue, size_t valueLen, size_t *paramRetSize)
{
    REQUIRE(groupInfo);
    REQUIRE(attrValue);
    REQUIRE(paramRetSize);
    (void)groupIndex;
    (void)attr;
    (void)valueLen;
    return refuse(__func__);
}
