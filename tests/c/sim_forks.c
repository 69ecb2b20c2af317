/* Children of a process that used a device and reset it: each has its own memory and threads, and
 * with ACL_SIM_SHARED a part of the capacity, which is returned when the child ends. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 4096, CHILDREN = 2, WORKERS = 6 };
static int ready[2], go[2];

static void nothing(void *argument)
{
    (void)argument;
}

static void use_device(void)
{
    aclrtStream stream;
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtLaunchHostFunc(stream, nothing, NULL));
    OK(aclrtSynchronizeStreamWithTimeout(stream, 60000));
    OK(aclrtDestroyStream(stream));
}

static void child(int number)
{
    unsigned char pattern[BYTES], back[BYTES];
    void *memory;
    use_device();
    memset(pattern, number, sizeof pattern);
    OK(aclrtMalloc(&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemcpy(memory, BYTES, pattern, BYTES, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(write(ready[1], pattern, 1) == 1);
    CHECK(read(go[0], back, 1) == 1);
    OK(aclrtMemcpy(back, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(memcmp(back, pattern, BYTES) == 0);
    _exit(0); /* without freeing its memory */
}

static void children_end(int count)
{
    for (int i = 0; i < count; i++) {
        int status;
        CHECK(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void worker(void)
{
    void *memory;
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&memory, (size_t)900 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
    _exit(0);
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 0; /* ThreadSanitizer starts no threads in the child of a process with several threads */
#endif
    char byte[CHILDREN];
    void *memory;
    char file[] = "/tmp/acl-sim-forks-XXXXXX";
    if (getenv("ACL_SIM_SHARED") == NULL) { /* run again, with a shared file of this run only */
        int made = mkstemp(file);
        CHECK(made >= 0);
        close(made);
        pid_t again = fork();
        if (again == 0) {
            setenv("ACL_SIM_SHARED", file, 1);
            setenv("ACL_SIM_MEMORY", "4G", 1);
            execl("/proc/self/exe", "sim_forks", (char *)NULL);
            _exit(9);
        }
        children_end(1);
        unlink(file);
        return 0;
    }
    OK(aclInit(NULL));
    use_device();
    OK(aclrtMalloc(&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtFree(memory));
    OK(aclrtResetDevice(0));
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    for (int i = 1; i <= CHILDREN; i++) {
        if (fork() == 0) {
            child(i);
        }
    }
    for (int i = 0; i < CHILDREN; i++) {
        CHECK(read(ready[0], byte, 1) == 1);
    }
    CHECK(write(go[1], byte, CHILDREN) == CHILDREN);
    children_end(CHILDREN);
    for (int i = 0; i < WORKERS; i++) {
        if (fork() == 0) {
            worker();
        }
        children_end(1);
    }
    use_device();
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
