/* Two processes share memory: by shareable handle (V1, V2, fabric) and by IPC key.
 *
 * The parent exports; the child (this program, started again so that it shares nothing by fork) imports,
 * checks the parent's bytes and writes its own, and the parent sees them. */
#include <inttypes.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const size_t GRANULE = (size_t)2 << 20;
enum { PATTERN_PARENT = 0x11, PATTERN_CHILD = 0x22, BYTES = 4096, ODD = 300 };

static void expect_bytes(const void *address, size_t bytes, unsigned char value)
{
    unsigned char *copy = malloc(bytes);
    OK(aclrtMemcpy(copy, bytes, address, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
    for (size_t i = 0; i < bytes; i++) {
        CHECK(copy[i] == value);
    }
    free(copy);
}

static void *map_handle(aclrtDrvMemHandle handle)
{
    void *base;
    OK(aclrtReserveMemAddress(&base, GRANULE, 0, NULL, 1));
    OK(aclrtMapMem(base, GRANULE, 0, handle, 0));
    return base;
}

/* ---- the child --------------------------------------------------------------------------------- */
static void meet_parent(void *address, size_t bytes)
{
    expect_bytes(address, bytes, PATTERN_PARENT);
    OK(aclrtMemset(address, bytes, PATTERN_CHILD, bytes));
}

static void child_handle(aclrtDrvMemHandle handle)
{
    meet_parent(map_handle(handle), BYTES);
    uint64_t token;
    GIVES(107000, aclrtMemExportToShareableHandle(handle, ACL_MEM_HANDLE_TYPE_NONE, 0, &token));
    OK(aclrtFreePhysical(handle));
}

static void fabric_parse(const char *text, aclrtMemFabricHandle *fabric)
{
    for (size_t i = 0; i < sizeof fabric->data; i++) {
        unsigned byte;
        CHECK(sscanf(text + 2 * i, "%2x", &byte) == 1);
        fabric->data[i] = (uint8_t)byte;
    }
}

static int child_main(const char *how, const char *name)
{
    aclrtDrvMemHandle handle;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(1));
    if (strcmp(how, "v1") == 0) {
        OK(aclrtMemImportFromShareableHandle(strtoull(name, NULL, 16), 1, &handle));
        child_handle(handle);
    } else if (strcmp(how, "v2") == 0) {
        uint64_t token = strtoull(name, NULL, 16);
        OK(aclrtMemImportFromShareableHandleV2(&token, ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT, 0,
                                               &handle));
        child_handle(handle);
    } else if (strcmp(how, "fabric") == 0) {
        aclrtMemFabricHandle fabric;
        fabric_parse(name, &fabric);
        OK(aclrtMemImportFromShareableHandleV2(&fabric, ACL_MEM_SHARE_HANDLE_TYPE_FABRIC, 0,
                                               &handle));
        child_handle(handle);
    } else if (strcmp(how, "refused") == 0) {
        GIVES(207006, aclrtMemImportFromShareableHandle(strtoull(name, NULL, 16), 1, &handle));
    } else if (strcmp(how, "gone") == 0) {
        GIVES(107000, aclrtMemImportFromShareableHandle(strtoull(name, NULL, 16), 1, &handle));
    } else {
        void *address, *again;
        OK(aclrtIpcMemImportByKey(&address, name, 0));
        OK(aclrtIpcMemImportByKey(&again, name, ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS));
        CHECK(address == again);
        meet_parent(address, ODD);
        GIVES(107000, aclrtFree(address));
        OK(aclrtIpcMemClose(name));
        expect_bytes(address, ODD, PATTERN_CHILD);
        OK(aclrtIpcMemClose(name));
        GIVES(107000, aclrtIpcMemClose(name));
    }
    return 0;
}

/* Starts the child, which waits before exec, so that its process id can be allowed first. */
static pid_t child_start(const char *how, const char *name, int go)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char byte;
        if (read(go, &byte, 1) != 1) {
            _exit(126);
        }
        execl("/proc/self/exe", "child", how, name, (char *)NULL);
        _exit(127);
    }
    return child;
}

static void child_finish(pid_t child, int go)
{
    int status;
    CHECK(write(go, "g", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- the parent -------------------------------------------------------------------------------- */
static aclrtDrvMemHandle physical_make(void)
{
    aclrtPhysicalMemProp prop = {.memAttr = ACL_HBM_MEM_HUGE,
                                 .location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE}};
    aclrtDrvMemHandle handle;
    OK(aclrtMallocPhysical(&handle, GRANULE, &prop, 0));
    return handle;
}

static void share_by_handle(const char *how, int allow)
{
    int pipes[2];
    char name[2 * sizeof(aclrtMemFabricHandle) + 1];
    uint64_t token;
    aclrtMemFabricHandle fabric;
    CHECK(pipe(pipes) == 0);
    aclrtDrvMemHandle handle = physical_make();
    void *base = map_handle(handle);
    OK(aclrtMemset(base, GRANULE, PATTERN_PARENT, BYTES));
    OK(aclrtMemExportToShareableHandle(handle, ACL_MEM_HANDLE_TYPE_NONE, 0, &token));
    snprintf(name, sizeof name, "%" PRIx64, token);
    if (strcmp(how, "fabric") == 0) {
        OK(aclrtMemExportToShareableHandleV2(handle, 0, ACL_MEM_SHARE_HANDLE_TYPE_FABRIC, &fabric));
        for (size_t i = 0; i < sizeof fabric.data; i++) {
            snprintf(name + 2 * i, 3, "%02x", fabric.data[i]);
        }
    }
    pid_t child = child_start(how, name, pipes[0]);
    if (allow) {
        int32_t pid = child;
        OK(aclrtMemSetPidToShareableHandle(token, &pid, 1));
    }
    if (strcmp(how, "gone") == 0) {
        OK(aclrtUnmapMem(base));
        OK(aclrtFreePhysical(handle));
    }
    child_finish(child, pipes[1]);
    if (allow && strcmp(how, "gone") != 0) {
        expect_bytes(base, BYTES, PATTERN_CHILD);
    }
    close(pipes[0]);
    close(pipes[1]);
}

/* A block shorter than a page, between two others that must not change. */
static void share_by_key(uint64_t flags)
{
    int pipes[2];
    char key[65];
    void *blocks[3];
    CHECK(pipe(pipes) == 0);
    for (int i = 0; i < 3; i++) {
        OK(aclrtMalloc(&blocks[i], ODD, ACL_MEM_MALLOC_NORMAL_ONLY));
        OK(aclrtMemset(blocks[i], ODD, PATTERN_PARENT, ODD));
    }
    OK(aclrtIpcMemGetExportKey(blocks[1], ODD, key, sizeof key, flags));
    pid_t child = child_start("key", key, pipes[0]);
    if (flags == 0) {
        int32_t pid = child;
        OK(aclrtIpcMemSetImportPid(key, &pid, 1));
    }
    child_finish(child, pipes[1]);
    expect_bytes(blocks[0], ODD, PATTERN_PARENT);
    expect_bytes(blocks[1], ODD, PATTERN_CHILD);
    expect_bytes(blocks[2], ODD, PATTERN_PARENT);
    OK(aclrtIpcMemClose(key));
    for (int i = 0; i < 3; i++) {
        OK(aclrtFree(blocks[i]));
    }
    close(pipes[0]);
    close(pipes[1]);
}

/* In one process: a freed block that an import still uses is neither allocated again nor changed. */
static void freed_while_imported(void)
{
    char key[65];
    void *block, *imported, *other;
    size_t unused, before, total;
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total));
    OK(aclrtMalloc(&block, GRANULE, ACL_MEM_MALLOC_HUGE_ONLY));
    OK(aclrtMemset(block, GRANULE, PATTERN_PARENT, GRANULE));
    OK(aclrtIpcMemGetExportKey(block, GRANULE, key, sizeof key, 1));
    OK(aclrtIpcMemImportByKey(&imported, key, 0));
    OK(aclrtFree(block));
    GIVES(107000, aclrtFree(block));
    OK(aclrtMalloc(&other, GRANULE, ACL_MEM_MALLOC_HUGE_ONLY));
    CHECK(other != block);
    OK(aclrtMemset(other, GRANULE, 0, GRANULE));
    expect_bytes(imported, GRANULE, PATTERN_PARENT);
    OK(aclrtIpcMemClose(key));
    OK(aclrtFree(other));
    OK(aclrtGetMemInfo(ACL_HBM_MEM, &unused, &total));
    CHECK(unused == before);
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        return child_main(argv[1], argv[2]);
    }
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    share_by_handle("v1", 1);
    share_by_handle("v2", 1);
    share_by_handle("fabric", 1);
    share_by_handle("refused", 0);
    share_by_handle("gone", 1);
    share_by_key(0);
    share_by_key(1);
    freed_while_imported();
    return 0;
}
