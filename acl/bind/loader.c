/* The loader: see loader.h.

   ACL_BACKEND (cann, sim, auto) and ACL_LIBRARY (a path) choose the library. ACL_WITHOUT hides functions of it, by name
   or, with `newer`, all functions that CANN 8.1.RC1 lacked: to see how a program runs on an older CANN.

   One mutex guards the opening. It is not held while `warn` runs. While it is held, no function of the library is
   called except its constructors. Pointers are published with release stores after the table is complete, so a thread
   sees a stub or the real function, both of which work. Calls read them without a barrier: see
   `barrier_in_all_threads`. */
#define _GNU_SOURCE
#include "loader.h"
#include "generated/table.h"

#include <dlfcn.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TRIED_MAX = 4096, COMPANIONS = 11 };

/* The libraries that contain CANN's functions. It depends on the release which library has a function. */
static const char *const companions[COMPANIONS] = {
    "libacl_rt.so",          "libacl_mdl.so",       "libacl_op.so",      "libacl_op_compiler.so",
    "libacl_cblas.so",       "libacl_tdt_channel.so", "libacl_tdt_queue.so", "libmsprofiler.so",
    "libascend_dump.so",     "libascendalog.so",    "libplatform.so",
};

static const char *const usual_homes[] = {
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/latest",
};

typedef struct Library {
    void *handle;
    void *companions[COMPANIONS];
    const char *backend;
    char path[PATH_MAX];
} Library;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Library library;           /* under `lock` until `opened` is set, then constant */
static atomic_bool opened;
static char tried[TRIED_MAX];     /* why libraries could not be opened, one line each; under `lock` */
static bool bound[LATE_COUNT];    /* under `lock` until `opened` is set, then constant */
static void ***slots;             /* the caller's function pointers */
static void (*warn)(void);
static _Thread_local int missing = -1;

static void note(const char *line)
{
    size_t used = strlen(tried);
    (void)snprintf(tried + used, sizeof tried - used, "%s%s", used ? "\n" : "", line);
}

/* Finds the simulator in acl/sim/lib, relative to this extension module (acl/bind/generated/_libacl). */
static bool simulator_path(char *path, size_t size)
{
    Dl_info self;
    if (dladdr(&library, &self) == 0 || self.dli_fname == NULL) {
        return false;
    }
    const char *end = strstr(self.dli_fname, "bind/generated/");
    for (const char *next = end; next != NULL; next = strstr(next + 1, "bind/generated/")) {
        end = next;
    }
    int folder = end == NULL ? 0 : (int)(end - self.dli_fname);
    int length = snprintf(path, size, "%.*ssim/lib/libascendcl.so", folder, self.dli_fname);
    return length > 0 && (size_t)length < size;
}

/* Stores the path of the open library, or the name that was asked for if the path cannot be found. */
static void remember_path(const char *asked)
{
    Dl_info found;
    void *symbol = dlsym(library.handle, "aclInit");
    char *real = NULL;
    if (symbol != NULL && dladdr(symbol, &found) != 0 && found.dli_fname != NULL) {
        real = realpath(found.dli_fname, NULL);
    }
    (void)snprintf(library.path, sizeof library.path, "%s", real != NULL ? real : asked);
    free(real);
}

/* Returns "sim" or "cann": only the simulator has this symbol. */
static const char *backend_of(void *handle)
{
    return dlsym(handle, "acl_sim_gate_enter") != NULL ? "sim" : "cann";
}

static bool try_path(const char *path, int flags)
{
    library.handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL | flags);
    if (library.handle == NULL) {
        const char *why = dlerror();
        if ((flags & RTLD_NOLOAD) == 0) {
            note(why != NULL ? why : path);
        }
        return false;
    }
    library.backend = backend_of(library.handle);
    remember_path(path);
    return true;
}

static bool try_home(const char *home)
{
    char path[PATH_MAX];
    if (home == NULL || home[0] == '\0') {
        return false;
    }
    int length = snprintf(path, sizeof path, "%s/lib64/libascendcl.so", home);
    return length > 0 && (size_t)length < sizeof path && try_path(path, 0);
}

/* Opens CANN's library. If the process has opened one already, uses that one, because two runtimes in a process would
   share nothing. */
static bool try_cann(void)
{
    if (try_path("libascendcl.so", RTLD_NOLOAD) || try_home(getenv("ASCEND_TOOLKIT_HOME")) ||
        try_home(getenv("ASCEND_HOME_PATH")) || try_path("libascendcl.so", 0)) {
        return true;
    }
    for (size_t i = 0; i < sizeof usual_homes / sizeof usual_homes[0]; i++) {
        if (try_home(usual_homes[i])) {
            return true;
        }
    }
    return false;
}

static bool try_simulator(void)
{
    char path[PATH_MAX];
    return simulator_path(path, sizeof path) && try_path(path, 0);
}

static bool is(const char *text, const char *word)
{
    return text != NULL && strcmp(text, word) == 0;
}

/* Opens the chosen library. Sets `*fell_back` to true if `auto` chose the simulator. */
static bool choose(bool *fell_back)
{
    const char *path = getenv("ACL_LIBRARY");
    const char *backend = getenv("ACL_BACKEND");
    tried[0] = '\0';
    if (path != NULL && path[0] != '\0') {
        return try_path(path, 0);
    }
    if (is(backend, "sim")) {
        return try_simulator();
    }
    if (is(backend, "cann")) {
        return try_cann();
    }
    if (backend != NULL && backend[0] != '\0' && !is(backend, "auto")) {
        char line[96];
        (void)snprintf(line, sizeof line, "ACL_BACKEND must be cann, sim or auto, not '%.40s'", backend);
        note(line);
        return false;
    }
    if (try_cann()) {
        return true;
    }
    *fell_back = try_simulator();
    return *fell_back;
}

/* Opens a companion from the folder of the main library; if it is not there, by its name alone. Companions of the
   simulator are never used with CANN. */
static void *companion(int index)
{
    char path[PATH_MAX];
    if (library.companions[index] != NULL) {
        return library.companions[index];
    }
    const char *slash = strrchr(library.path, '/');
    if (slash != NULL) {
        int folder = (int)(slash - library.path) + 1;
        int length = snprintf(path, sizeof path, "%.*s%s", folder, library.path, companions[index]);
        if (length > 0 && (size_t)length < sizeof path) {
            library.companions[index] = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
        }
    }
    if (library.companions[index] == NULL && is(library.backend, "cann")) {
        library.companions[index] = dlopen(companions[index], RTLD_LAZY | RTLD_LOCAL);
    }
    return library.companions[index];
}

static void *symbol_find(const char *name, bool *open_companions)
{
    void *symbol = dlsym(library.handle, name);
    for (int i = 0; symbol == NULL && i < COMPANIONS; i++) {
        void *handle = *open_companions ? companion(i) : library.companions[i];
        symbol = handle != NULL ? dlsym(handle, name) : NULL;
    }
    *open_companions = false; /* companions are opened once; those that could not be opened are not tried again */
    return symbol;
}

/* Returns true if ACL_WITHOUT names the function, or if it has `newer` and CANN 8.1.RC1 lacked the function. */
static bool is_hidden(int function, const char *list)
{
    size_t length;
    for (const char *word = list; word != NULL && *word != '\0'; word += length + (word[length] == ',')) {
        length = strcspn(word, ",");
        const char *name = late_names[function];
        if (strlen(name) == length && strncmp(word, name, length) == 0) {
            return true;
        }
        if (length == strlen("newer") && strncmp(word, "newer", length) == 0 && late_newer[function]) {
            return true;
        }
    }
    return false;
}

/* Runs a memory barrier in each running thread. A thread that reads a new pointer afterwards has run the barrier, so
   the function that it calls finds the library's data complete, even on processors that reorder loads. If the kernel
   refuses the barrier, this is certain on x86 only. */
static void barrier_in_all_threads(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0) {
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    }
}

/* Stores the addresses from dlsym in the function pointers. No other function writes real addresses there. */
static void bind_all(void)
{
    void **table = (void **)&late_table;
    bool open_companions = true;
    const char *without = getenv("ACL_WITHOUT");
    for (int i = 0; i < LATE_COUNT; i++) {
        if (is_hidden(i, without)) {
            continue;
        }
        void *symbol = dlsym(library.handle, late_names[i]);
        if (symbol == NULL) {
            symbol = symbol_find(late_names[i], &open_companions);
        }
        if (symbol != NULL) {
            table[i] = symbol;
            bound[i] = true;
        }
    }
    barrier_in_all_threads();
    for (int i = 0; i < LATE_COUNT; i++) {
        __atomic_store_n(slots[i], table[i], __ATOMIC_RELEASE);
    }
}

void late_start(void ***pointers, void (*on_fallback)(void))
{
    slots = pointers;
    warn = on_fallback;
    for (int i = 0; i < LATE_COUNT; i++) {
        *slots[i] = ((void **)&late_table)[i];
    }
}

bool late_open(void)
{
    bool fell_back = false;
    if (atomic_load_explicit(&opened, memory_order_acquire)) {
        return true;
    }
    (void)pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&opened, memory_order_relaxed) && choose(&fell_back)) {
        bind_all();
        atomic_store_explicit(&opened, true, memory_order_release);
    }
    (void)pthread_mutex_unlock(&lock);
    if (fell_back) {
        warn();
    }
    return atomic_load_explicit(&opened, memory_order_acquire);
}

bool late_find(int function)
{
    if (late_open() && bound[function]) {
        return true;
    }
    missing = function;
    return false;
}

const char *late_missing(void)
{
    const char *name = missing < 0 ? NULL : late_names[missing];
    missing = -1;
    return name;
}

bool late_has(const char *name)
{
    if (!late_open()) {
        return false;
    }
    for (int i = 0; i < LATE_COUNT; i++) {
        if (strcmp(late_names[i], name) == 0) {
            return bound[i];
        }
    }
    return false;
}

bool late_bound(int function)
{
    return late_open() && bound[function];
}

const char *late_backend(void)
{
    return atomic_load_explicit(&opened, memory_order_acquire) ? library.backend : NULL;
}

const char *late_path(void)
{
    return atomic_load_explicit(&opened, memory_order_acquire) ? library.path : NULL;
}

const char *late_failure(void)
{
    return atomic_load_explicit(&opened, memory_order_acquire) ? NULL : tried;
}

const char *late_code_name(int code)
{
    int low = 0;
    int high = LATE_CODES;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (late_codes[middle].value < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < LATE_CODES && late_codes[low].value == code ? late_codes[low].name : NULL;
}
