/* A pipeline, built with ThreadSanitizer against a simulator that is not: what passes between the program
 * and the streams' threads is ordered by calls only.  With an argument it is wrong: it waits for no copy.
 * test_check.py runs it. */
#include <stdbool.h>
#include <string.h>

#include "check.h"

enum { BYTES = 4096, TURNS = 50 };

static char *host, *back;
static int calls;

static void count(void *nothing)
{
    (void)nothing;
    calls++;
    host[0]++;
}

int main(int count_of, char **arguments)
{
    bool waits = count_of < 2;
    aclrtStream one, two;
    aclrtEvent event;
    void *memory;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&one));
    OK(aclrtCreateStream(&two));
    OK(aclrtCreateEvent(&event));
    OK(aclrtMalloc(&memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMallocHost((void **)&host, BYTES));
    OK(aclrtMallocHost((void **)&back, BYTES));
    for (int turn = 0; turn < TURNS; turn++) {
        memset(host, turn, BYTES);
        OK(aclrtLaunchHostFunc(one, count, NULL));
        OK(aclrtMemcpyAsync(memory, BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, one));
        OK(aclrtRecordEvent(event, one));
        OK(aclrtStreamWaitEvent(two, event));
        OK(aclrtMemcpyAsync(back, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, two));
        if (!waits) {
            printf("%s %d\n", arguments[1], back[0]);
            OK(aclrtSynchronizeDevice());
            continue;
        }
        if (turn % 2 == 0) {
            OK(aclrtSynchronizeStream(two));
        } else {
            OK(aclrtRecordEvent(event, two));
            OK(aclrtSynchronizeEvent(event));
        }
        CHECK(back[0] == (char)(turn + 1) && back[BYTES - 1] == (char)turn && calls == turn + 1);
    }
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyStream(one));
    OK(aclrtDestroyStream(two));
    OK(aclrtFree(memory));
    OK(aclrtFreeHost(host));
    OK(aclrtFreeHost(back));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
