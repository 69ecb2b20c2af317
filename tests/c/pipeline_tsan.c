/* A pipeline, built with ThreadSanitizer against a simulator built without it: data between the program
 * and the streams' threads is ordered only by calls.  With an argument the program is wrong: it reads what a copy has
 * written when a relaxed atomic says so, which orders nothing.  There is no call of ACL between
 * the copy and the read, because a lock of the call could order them by chance.  test_check.py runs it. */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 4096, TURNS = 50 };

static char *host, *back;
static int calls;
static atomic_int queued, copied; /* turns; used only by the wrong program */

static void turn_wait(const atomic_int *turns, int turn)
{
    while (atomic_load_explicit(turns, memory_order_relaxed) <= turn) {
        usleep(100);
    }
}

static void until_queued(void *turn)
{
    turn_wait(&queued, *(const int *)turn);
}

static void tell_copied(void *nothing)
{
    (void)nothing;
    atomic_fetch_add_explicit(&copied, 1, memory_order_relaxed);
}

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
        if (!waits) {
            OK(aclrtLaunchHostFunc(one, until_queued, &turn));
        }
        OK(aclrtLaunchHostFunc(one, count, NULL));
        OK(aclrtMemcpyAsync(memory, BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE, one));
        OK(aclrtRecordEvent(event, one));
        OK(aclrtStreamWaitEvent(two, event));
        OK(aclrtMemcpyAsync(back, BYTES, memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST, two));
        if (!waits) {
            OK(aclrtLaunchHostFunc(two, tell_copied, NULL));
            atomic_fetch_add_explicit(&queued, 1, memory_order_relaxed);
            turn_wait(&copied, turn);
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
