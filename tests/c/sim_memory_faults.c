/* Accesses that must kill a program: touching pages that are not mapped, and in strict mode touching
 * device memory from the host.  Each case runs in its own child process. */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Called by LeakSanitizer: turns it off, because the children exit without freeing memory, on purpose. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

static const size_t GRANULE = (size_t)2 << 20;

static void touch(void *address)
{
    *(volatile char *)address = 1;
}

static aclrtDrvMemHandle map_granule(void **base)
{
    aclrtPhysicalMemProp prop = {.memAttr = ACL_HBM_MEM_HUGE,
                                 .location = {.id = 0, .type = ACL_MEM_LOCATION_TYPE_DEVICE}};
    aclrtDrvMemHandle handle;
    OK(aclrtReserveMemAddress(base, 2 * GRANULE, 0, NULL, 1));
    OK(aclrtMallocPhysical(&handle, GRANULE, &prop, 0));
    OK(aclrtMapMem(*base, GRANULE, 0, handle, 0));
    return handle;
}

/* ---- the cases; each touches forbidden memory at its end --------------------------------------- */
static void touch_never_mapped(void)
{
    void *base;
    map_granule(&base);
    touch((char *)base + GRANULE);
}

static void touch_unmapped(void)
{
    void *base;
    map_granule(&base);
    touch(base);
    OK(aclrtUnmapMem(base));
    touch(base);
}

static void touch_without_access(void)
{
    void *base;
    aclrtDrvMemHandle handle = map_granule(&base);
    OK(aclrtMemMapNoAccess((char *)base + GRANULE, GRANULE, 0, handle, 0));
    touch((char *)base + GRANULE);
}

static void touch_malloc(void)
{
    void *address;
    OK(aclrtMalloc(&address, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
    touch(address);
}

static void touch_mapped(void)
{
    void *base;
    map_granule(&base);
    touch(base);
}

/* ---- the case that must not die, strict or not ------------------------------------------------- */
static void copies_work(void)
{
    char bytes[64] = {7}, back[64] = {0};
    void *address, *base, *pinned;
    OK(aclrtMalloc(&address, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
    map_granule(&base);
    OK(aclrtMemcpy(address, 4096, bytes, 64, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclrtMemcpy(base, GRANULE, address, 64, ACL_MEMCPY_DEVICE_TO_DEVICE));
    OK(aclrtMemsetAsync((char *)base + 64, 64, 9, 64, NULL));
    OK(aclrtSynchronizeStream(NULL));
    OK(aclrtMemcpy(back, 64, base, 64, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(memcmp(bytes, back, 64) == 0);
    OK(aclrtMemcpy(back, 64, (char *)base + 64, 64, ACL_MEMCPY_DEVICE_TO_HOST));
    CHECK(back[0] == 9 && back[63] == 9);
    OK(aclrtMallocHost(&pinned, 4096));
    touch(pinned); /* host memory, in strict mode too */
    OK(aclrtUnmapMem(base));
    GIVES(107000, aclrtMemcpy(back, 64, base, 64, ACL_MEMCPY_DEVICE_TO_HOST));
}

/* ---- children ---------------------------------------------------------------------------------- */
typedef struct Case {
    const char *name;
    void (*run)(void);
    int dies, dies_strict; /* by SIGSEGV */
} Case;

static const Case cases[] = {
    {"never mapped", touch_never_mapped, 1, 1},
    {"unmapped", touch_unmapped, 1, 1},
    {"no access", touch_without_access, 1, 1},
    {"malloc", touch_malloc, 0, 1},
    {"mapped", touch_mapped, 0, 1},
    {"copies", copies_work, 0, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static int case_run(const Case *one)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGSEGV, SIG_DFL); /* instead of the sanitizer's handler */
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    one->run();
    return 0;
}

static void case_check(const char *program, int number, int strict)
{
    char text[16];
    int status;
    snprintf(text, sizeof text, "%d", number);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setenv("ACL_SIM_STRICT", strict ? "1" : "0", 1);
        execl(program, program, text, (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(child, &status, 0) == child);
    int expected = strict ? cases[number].dies_strict : cases[number].dies;
    int died = WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
    int lived = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!(expected ? died : lived)) {
        fprintf(stderr, "%s, strict %d: status 0x%x\n", cases[number].name, strict, status);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        return case_run(&cases[atoi(argv[1])]);
    }
    for (int i = 0; i < CASES; i++) {
        case_check("/proc/self/exe", i, 0);
        case_check("/proc/self/exe", i, 1);
    }
    return 0;
}
