/* A process whose first thread has ended is alive: its records count, its imported memory is kept, and other processes
 * can import its exports.
 *
 * The test forks before it has called ACL.  Parent and child send a byte through a pipe after each step. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { KEY_BYTES = 65, WAIT_MS = 50, LOOKS = 30000 };
static const size_t LARGE = (size_t)1 << 30;
static int from_parent[2], from_child[2];

typedef struct Keys {
    aclrtIpcEventHandle event;
    char notify[KEY_BYTES], memory[KEY_BYTES];
} Keys;

static void say(int file, const void *bytes, size_t count)
{
    CHECK(write(file, bytes, count) == (ssize_t)count);
}

static void hear(int file, void *bytes, size_t count)
{
    CHECK(read(file, bytes, count) == (ssize_t)count);
}

static void hear_in_stream(void *unused)
{
    char byte;
    (void)unused;
    hear(from_parent[0], &byte, 1);
}

/* Waits until the kernel calls this process a zombie, as it does once its first thread has ended. */
static void first_thread_wait(void)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    for (int look = 0; look < LOOKS; look++) {
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && fgets(text, sizeof text, file) != NULL);
        fclose(file);
        if (strstr(text, ") Z ") != NULL) {
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    CHECK(!"the first thread has ended");
}

static Keys keys_make(aclrtEvent *event, aclrtNotify *notify, void **memory)
{
    Keys keys;
    memset(&keys, 0, sizeof keys);
    OK(aclrtCreateEventExWithFlag(event, ACL_EVENT_IPC));
    OK(aclrtIpcGetEventHandle(*event, &keys.event));
    OK(aclrtCreateNotify(notify, 0));
    OK(aclrtNotifyGetExportKey(*notify, keys.notify, KEY_BYTES, ACL_RT_NOTIFY_EXPORT_FLAG_DISABLE_PID_VALIDATION));
    OK(aclrtMalloc(memory, LARGE, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtIpcMemGetExportKey(*memory, LARGE, keys.memory, KEY_BYTES, ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION));
    return keys;
}

static void keys_import(Keys *keys, aclrtEvent *event, void **memory)
{
    aclrtNotify notify;
    OK(aclrtIpcOpenEventHandle(keys->event, event));
    OK(aclrtNotifyImportByKey(&notify, keys->notify, 0));
    OK(aclrtDestroyNotify(notify));
    OK(aclrtIpcMemImportByKey(memory, keys->memory, 0));
}

/* Exports memory and an event, imports the parent's, and records the event behind a host function that waits for the
   parent. */
static void *child(void *unused)
{
    aclrtStream stream;
    aclrtEvent own, event;
    aclrtNotify notify;
    void *memory, *imported;
    (void)unused;
    first_thread_wait();
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    Keys keys = keys_make(&own, &notify, &memory);
    say(from_child[1], &keys, sizeof keys);
    hear(from_parent[0], &keys, sizeof keys);
    keys_import(&keys, &event, &imported);
    OK(aclrtLaunchHostFunc(stream, hear_in_stream, NULL));
    OK(aclrtRecordEvent(event, stream));
    say(from_child[1], "r", 1);
    OK(aclrtSynchronizeStream(stream));
    _exit(0);
}

static size_t free_bytes(void)
{
    size_t left, total;
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &left, &total));
    return left;
}

static void parent(pid_t pid)
{
    aclrtEvent own, event;
    aclrtNotify notify;
    void *memory, *imported;
    char byte;
    int status;
    Keys keys;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    hear(from_child[0], &keys, sizeof keys);
    keys_import(&keys, &event, &imported);
    size_t before = free_bytes();
    keys = keys_make(&own, &notify, &memory);
    say(from_parent[1], &keys, sizeof keys);
    hear(from_child[0], &byte, 1);
    OK(aclrtFree(memory));
    CHECK(free_bytes() < before);
    GIVES(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, aclrtSynchronizeEventWithTimeout(own, WAIT_MS));
    say(from_parent[1], "g", 1);
    OK(aclrtSynchronizeEvent(own));
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyEvent(own));
    OK(aclrtDestroyNotify(notify));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
}

int main(void)
{
    pthread_t thread;
    CHECK(pipe(from_parent) == 0 && pipe(from_child) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(from_parent[1]);
        close(from_child[0]);
        CHECK(pthread_create(&thread, NULL, child, NULL) == 0);
        pthread_exit(NULL);
    }
    close(from_parent[0]); /* so that the end of one process ends the other's wait */
    close(from_child[1]);
    parent(pid);
    return 0;
}
