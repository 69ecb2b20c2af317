/* Several processes: a wait that began before the export, an importer that is killed, many exports.
 *
 * The other process is this program too; its arguments are the action and a key. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { KEY_BYTES = 65, EXPORTS = 1 << 16 };
static const size_t LARGE = (size_t)1 << 30;
static aclrtStream stream;

static pid_t start(const char *what, const char *key)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "sim_processes", what, key, (char *)NULL);
        _exit(9);
    }
    CHECK(pid > 0);
    return pid;
}

static int other(const char *what, const char *key)
{
    aclrtNotify notify;
    void *memory;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    if (strcmp(what, "record") == 0) {
        OK(aclrtNotifyImportByKey(&notify, key, 0));
        OK(aclrtRecordNotify(notify, stream));
        OK(aclrtSynchronizeStream(stream));
        OK(aclrtDestroyNotify(notify));
        return 0;
    }
    OK(aclrtIpcMemImportByKey(&memory, key, 0));
    raise(SIGKILL);
    return 1;
}

static void a_wait_that_began_before_the_export(void)
{
    aclrtNotify notify;
    char key[KEY_BYTES];
    int status;
    OK(aclrtCreateNotify(&notify, 0));
    OK(aclrtWaitAndResetNotify(notify, stream, 0));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(stream, 50));
    OK(aclrtNotifyGetExportKey(notify, key, KEY_BYTES,
                               ACL_RT_NOTIFY_EXPORT_FLAG_DISABLE_PID_VALIDATION));
    pid_t pid = start("record", key);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    OK(aclrtSynchronizeStreamWithTimeout(stream, 30000));
    OK(aclrtDestroyNotify(notify));
}

static size_t free_bytes(void)
{
    size_t left, total;
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &left, &total));
    return left;
}

/* An importer that is killed but not yet waited for (a zombie) holds no memory. */
static void an_importer_that_is_killed(void)
{
    char key[KEY_BYTES];
    void *memory;
    siginfo_t ended;
    size_t before = free_bytes();
    OK(aclrtMalloc(&memory, LARGE, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtIpcMemGetExportKey(memory, LARGE, key, KEY_BYTES,
                               ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION));
    pid_t pid = start("import", key);
    CHECK(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) == 0);
    CHECK(ended.si_code == CLD_KILLED);
    OK(aclrtFree(memory));
    CHECK(free_bytes() == before);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* Ending an old export does not end a newer export in the same slot of the table. */
static void many_exports(void)
{
    void *first, *second;
    char key[KEY_BYTES], last[KEY_BYTES];
    int32_t self = (int32_t)getpid();
    OK(aclrtMalloc(&first, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMalloc(&second, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtIpcMemGetExportKey(first, 4096, key, KEY_BYTES, 0));
    OK(aclrtIpcMemClose(key));
    for (int i = 0; i < EXPORTS; i++) {
        OK(aclrtIpcMemGetExportKey(second, 4096, key, KEY_BYTES, 0));
        OK(aclrtIpcMemClose(key));
    }
    OK(aclrtIpcMemGetExportKey(second, 4096, last, KEY_BYTES, 0));
    OK(aclrtFree(first));
    OK(aclrtIpcMemSetImportPid(last, &self, 1));
    OK(aclrtFree(second));
}

int main(int count, char **arguments)
{
    if (count == 3) {
        return other(arguments[1], arguments[2]);
    }
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    a_wait_that_began_before_the_export();
    an_importer_that_is_killed();
    many_exports();
    OK(aclrtDestroyStream(stream));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
