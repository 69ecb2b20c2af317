/* A notify between two processes: this process exports it, allows the other one and waits; the other one imports and
   records it. */
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { KEY_BYTES = 65 };

static int to_child[2], to_parent[2];

static void child(void)
{
    char keys[2][KEY_BYTES], byte = 'x';
    aclrtNotify ours, theirs;
    aclrtStream stream;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    CHECK(read(to_child[0], keys, sizeof keys) == (ssize_t)sizeof keys);
    OK(aclrtNotifyImportByKey(&ours, keys[0], 0));
    GIVES(ACL_ERROR_RT_NO_PERMISSION, aclrtNotifyImportByKey(&theirs, keys[1], 0));
    CHECK(write(to_parent[1], &byte, 1) == 1);
    CHECK(read(to_child[0], &byte, 1) == 1);
    OK(aclrtRecordNotify(ours, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK(read(to_child[0], &byte, 1) == 1);
    OK(aclrtWaitAndResetNotify(ours, stream, 20));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyNotify(ours));
    OK(aclrtResetDevice(0));
    _exit(0);
}

static void parent(pid_t pid)
{
    char keys[2][KEY_BYTES], byte = 'x';
    int status;
    int32_t allowed = (int32_t)pid;
    aclrtNotify notify, closed;
    aclrtStream stream;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateNotify(&notify, 0));
    OK(aclrtCreateNotify(&closed, 0));
    GIVES(ACL_ERROR_RT_PARAM_INVALID, aclrtNotifySetImportPid(notify, &allowed, 1));
    OK(aclrtNotifyGetExportKey(notify, keys[0], KEY_BYTES, 0));
    OK(aclrtNotifyGetExportKey(closed, keys[1], KEY_BYTES, 0));
    OK(aclrtNotifySetImportPid(notify, &allowed, 1));
    CHECK(write(to_child[1], keys, sizeof keys) == (ssize_t)sizeof keys);
    CHECK(read(to_parent[0], &byte, 1) == 1);
    OK(aclrtWaitAndResetNotify(notify, stream, 0));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(stream, 50));
    CHECK(write(to_child[1], &byte, 1) == 1);
    OK(aclrtSynchronizeStreamWithTimeout(stream, 20000));
    OK(aclrtRecordNotify(notify, stream));
    OK(aclrtSynchronizeStream(stream));
    CHECK(write(to_child[1], &byte, 1) == 1);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(aclrtWaitAndResetNotify(notify, stream, 0));
    OK(aclrtStreamAbort(stream));
    OK(aclrtSynchronizeStreamWithTimeout(stream, 20000));
    OK(aclrtDestroyNotify(notify));
    OK(aclrtDestroyNotify(closed));
    GIVES(ACL_ERROR_RT_PARAM_INVALID, aclrtNotifyImportByKey(&notify, keys[0], 0));
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
}

int main(void)
{
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child();
    }
    parent(pid);
    return 0;
}
