/* Profiling: a configuration from init to finalize, with marks, ranges, steps and marks that a
   stream reaches; then the file that profiling wrote. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "acl/acl_prof.h"
#include "check.h"

static void *stamp_with(const char *text)
{
    void *stamp = aclprofCreateStamp();
    EXPECT(stamp != NULL);
    CHECK(aclprofSetStampTraceMessage(stamp, text, (uint32_t)strlen(text)));
    return stamp;
}

static void *stop_range(void *argument)
{
    CHECK(aclprofRangeStop(*(uint32_t *)argument));
    return NULL;
}

static void marks(aclrtStream stream)
{
    uint32_t range = 0;
    pthread_t thread;
    void *outer = stamp_with("outer"), *inner = stamp_with("inner"), *long_one = stamp_with("long");
    CHECK(aclprofPush(outer));
    CHECK(aclprofPush(inner));
    CHECK(aclprofRangeStart(long_one, &range));
    CHECK(aclprofMark(inner));
    CHECK(aclprofMarkEx("on a stream", strlen("on a stream"), stream));
    CHECK(aclprofPop());
    CHECK(aclprofPop());
    EXPECT(aclprofPop() != ACL_SUCCESS);
    EXPECT(pthread_create(&thread, NULL, stop_range, &range) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(aclprofRangeStop(range) != ACL_SUCCESS);
    aclprofDestroyStamp(long_one);
    aclprofDestroyStamp(inner);
    aclprofDestroyStamp(outer);
}

static void expect_in_file(const char *folder, const char *const *texts)
{
    static char content[1 << 16];
    char path[256];
    snprintf(path, sizeof path, "%s/PROF_sim_%d.json", folder, (int)getpid());
    FILE *file = fopen(path, "r");
    EXPECT(file != NULL);
    content[fread(content, 1, sizeof content - 1, file)] = '\0';
    fclose(file);
    for (; *texts != NULL; texts++) {
        EXPECT(strstr(content, *texts) != NULL);
    }
    remove(path);
}

int main(void)
{
    static const char *const texts[] = {"outer", "inner", "long", "on a stream", "step", NULL};
    char folder[] = "/tmp/profiling-XXXXXX";
    uint32_t device = 0;
    aclrtStream stream;
    EXPECT(mkdtemp(folder) != NULL);
    open_device(0);
    CHECK(aclrtCreateStream(&stream));
    EXPECT(aclprofCreateStamp() == NULL); /* not started */
    CHECK(aclprofInit(folder, strlen(folder)));
    EXPECT(aclprofInit(folder, strlen(folder)) == ACL_ERROR_REPEAT_INITIALIZE);
    aclprofConfig *config = aclprofCreateConfig(&device, 1, ACL_AICORE_PIPE_UTILIZATION, NULL,
                                                ACL_PROF_ACL_API | ACL_PROF_TASK_TIME |
                                                    ACL_PROF_MSPROFTX);
    EXPECT(config != NULL);
    CHECK(aclprofSetConfig(ACL_PROF_SYS_HARDWARE_MEM_FREQ, "15", 2));
    CHECK(aclprofStart(config));
    aclprofStepInfo *step = aclprofCreateStepInfo();
    CHECK(aclprofGetStepTimestamp(step, ACL_STEP_START, stream));
    marks(stream);
    CHECK(aclprofGetStepTimestamp(step, ACL_STEP_END, stream));
    CHECK(aclrtSynchronizeStream(stream));
    aclprofDestroyStepInfo(step);
    CHECK(aclprofStop(config));
    CHECK(aclprofDestroyConfig(config));
    CHECK(aclprofFinalize());
    EXPECT(aclprofFinalize() == ACL_ERROR_PROF_NOT_RUN);
    expect_in_file(folder, texts);
    EXPECT(rmdir(folder) == 0);
    CHECK(aclrtDestroyStream(stream));
    close_device(0);
    return 0;
}
