/* binary.c: loading binaries and finding their functions (aclrtBinary*, aclrtCreateBinary).
 *
 * A shared object of the host is loaded from memory; two loads of one file have separate code and
 * data. Device code can also be loaded, and its functions can be found; kernel.c decides whether they
 * can be launched. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/elf64.h"
#include "generated/exports.h"
#include "kernels/kernel.h"

enum { MAGIC_CUBE = 0x43554245, MAGIC_VECTOR = 0x41415246, MAGIC_CPU = 0x41494343 };

/* The arguments of aclrtCreateBinary. The bytes belong to the program and are read when the binary is loaded. */
typedef struct BinaryData {
    const void *bytes;
    size_t length;
} BinaryData;

/* --- code --- */

void code_hold(Code *code)
{
    atomic_fetch_add(&code->references, 1);
}

void code_release(Code *code)
{
    if (atomic_fetch_sub(&code->references, 1) == 1) {
        if (code->library != NULL) {
            (void)dlclose(code->library);
        }
        free(code->bytes);
        free(code);
    }
}

/* Makes a path to the open file `fd` that no earlier call made. If dlopen gets a path for the second
 * time, it returns the library of the first call; and the system reuses descriptor numbers. So the
 * path contains the number of this call, with "/." for each bit that is 1 and "/" for each bit that
 * is 0. Neither changes which file the path names. */
static void path_make(int fd, char *path, size_t room)
{
    static _Atomic uint32_t count;
    uint32_t number = atomic_fetch_add(&count, 1);
    size_t used = (size_t)snprintf(path, room, "/proc/thread-self/fd");
    for (int bit = 0; bit < 32; bit++) {
        used += (size_t)snprintf(path + used, room - used, (number >> bit & 1U) != 0 ? "/." : "/");
    }
    (void)snprintf(path + used, room - used, "/%d", fd);
}

/* Loads the library from a file in memory, so that two loads never share a library. */
static aclError library_open(Code *code)
{
    char path[128];
    int fd = memfd_create("acl-kernel", MFD_CLOEXEC);
    bool written = fd >= 0;
    for (size_t done = 0; written && done < code->length;) {
        ssize_t some = write(fd, (const char *)code->bytes + done, code->length - done);
        written = some > 0;
        done += written ? (size_t)some : 0;
    }
    path_make(fd, path, sizeof path);
    code->library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (fd >= 0) {
        (void)close(fd);
    }
    const char *reason = code->library == NULL && written ? dlerror() : NULL;
    return code->library != NULL ? ACL_SUCCESS
        : fail(ACL_ERROR_RT_PARAM_INVALID, "the shared object cannot be loaded: %s",
            reason != NULL ? reason : "no memory for a copy of it");
}

static bool has_function(const void *bytes, size_t length)
{
    ElfSymbol symbol;
    ElfSymbols symbols = elf64_symbols(bytes, length);
    while (elf64_next(&symbols, &symbol)) {
        if (symbol.function) {
            return true;
        }
    }
    return false;
}

static aclError code_new(const void *bytes, size_t length, bool opaque, Code **out)
{
    bool elf = elf64_valid(bytes, length) && has_function(bytes, length);
    if (!elf && !opaque) {
        return fail(ACL_ERROR_RT_PARAM_INVALID,
            "%zu bytes are not a 64-bit ELF file with functions", length);
    }
    Code *code = calloc(1, sizeof *code);
    void *copy = malloc(length);
    if (code == NULL || copy == NULL) {
        free(code);
        free(copy);
        return fail(
            ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for a binary of %zu bytes", length);
    }
    atomic_init(&code->references, 1);
    code->bytes = memcpy(copy, bytes, length);
    code->length = length;
    code->kind = elf && elf64_native(bytes, length) ? CODE_HOST : elf ? CODE_DEVICE : CODE_OPAQUE;
    aclError status = code->kind == CODE_HOST ? library_open(code) : ACL_SUCCESS;
    if (status != ACL_SUCCESS) {
        code_release(code);
        return status;
    }
    *out = code;
    return ACL_SUCCESS;
}

/* --- loading --- */

static bool option_valid(const aclrtBinaryLoadOption *option)
{
    switch ((int)option->type) {
    case ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD:
        return option->value.isLazyLoad <= 1;
    case ACL_RT_BINARY_LOAD_OPT_MAGIC:
        return option->value.magic == MAGIC_CUBE || option->value.magic == MAGIC_VECTOR
            || option->value.magic == MAGIC_CPU;
    case ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE:
        return option->value.cpuKernelMode >= 0 && option->value.cpuKernelMode <= 2;
    default:
        return false;
    }
}

static aclError options_check(const aclrtBinaryLoadOptions *options, int *cpu_mode)
{
    *cpu_mode = -1;
    if (options == NULL) {
        return ACL_SUCCESS;
    }
    REQUIRE_RT(options->options);
    for (size_t i = 0; i < options->numOpt; i++) {
        const aclrtBinaryLoadOption *option = &options->options[i];
        if (!option_valid(option)) {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "load option %zu: type %d with value %u is not supported", i,
                (int)option->type, option->value.magic);
        }
        if (option->type == ACL_RT_BINARY_LOAD_OPT_CPU_KERNEL_MODE) {
            *cpu_mode = option->value.cpuKernelMode;
        }
    }
    return ACL_SUCCESS;
}

static aclError binary_new(const void *bytes, size_t length, bool opaque, aclrtBinHandle *handle)
{
    Code *code;
    TRY(code_new(bytes, length, opaque, &code));
    Binary *binary = handle_prepare(HANDLE_BINARY, sizeof *binary);
    if (binary == NULL) {
        code_release(code);
        return fail(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many binaries");
    }
    binary->code = code;
    pthread_mutex_init(&binary->lock, NULL);
    *handle = binary;
    handle_show(binary);
    return ACL_SUCCESS;
}

aclError sim_aclrtBinaryLoadFromData(const void *data, size_t length,
    const aclrtBinaryLoadOptions *options, aclrtBinHandle *binHandle)
{
    int cpu_mode;
    REQUIRE(data);
    REQUIRE(binHandle);
    REQUIRE_RT(length > 0);
    TRY(options_check(options, &cpu_mode));
    REQUIRE_RT(
        cpu_mode == -1 || cpu_mode == 2); /* modes 0 and 1 are for files; mode 2: the data is the bytes of a library */
    return binary_new(data, length, cpu_mode == 2, binHandle);
}

/* Refuses all options except lazy loading, because the kind of a binary follows from the file's content. */
static aclError file_options_check(const aclrtBinaryLoadOptions *options)
{
    for (size_t i = 0; options != NULL && i < options->numOpt; i++) {
        if (options->options[i].type != ACL_RT_BINARY_LOAD_OPT_LAZY_LOAD) {
            return fail(ACL_ERROR_RT_PARAM_INVALID,
                "load option %zu: type %d is for binaries from memory", i,
                (int)options->options[i].type);
        }
    }
    return ACL_SUCCESS;
}

static aclError file_read(const char *path, void **bytes, size_t *length)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0;
    *length = good ? (size_t)about.st_size : 0;
    *bytes = good ? malloc(*length) : NULL;
    good = *bytes != NULL;
    for (size_t done = 0; good && done < *length;) {
        ssize_t some = read(fd, (char *)*bytes + done, *length - done);
        good = some > 0;
        done += good ? (size_t)some : 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (!good) {
        free(*bytes);
    }
    return good
        ? ACL_SUCCESS
        : fail(ACL_ERROR_RT_PARAM_INVALID, "the binary %s cannot be read, or is empty", path);
}

aclError sim_aclrtBinaryLoadFromFile(
    const char *binPath, aclrtBinaryLoadOptions *options, aclrtBinHandle *binHandle)
{
    int cpu_mode;
    void *bytes;
    size_t length;
    REQUIRE(binPath);
    REQUIRE(binHandle);
    TRY(options_check(options, &cpu_mode));
    TRY(file_options_check(options));
    TRY(file_read(binPath, &bytes, &length));
    aclError status = binary_new(bytes, length, false, binHandle);
    free(bytes);
    return status;
}

aclrtBinary sim_aclrtCreateBinary(const void *data, size_t dataLen)
{
    BinaryData *binary = data == NULL ? NULL : handle_new(HANDLE_BINARY_DATA, sizeof *binary);
    if (binary == NULL) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "data is NULL, or no memory");
        return NULL;
    }
    binary->bytes = data;
    binary->length = dataLen;
    return binary;
}

aclError sim_aclrtDestroyBinary(aclrtBinary binary)
{
    REQUIRE(handle_is(binary, HANDLE_BINARY_DATA) && handle_kill(binary));
    handle_retire(binary);
    return ACL_SUCCESS;
}

aclError sim_aclrtBinaryLoad(const aclrtBinary binary, aclrtBinHandle *binHandle)
{
    const BinaryData *data = binary;
    REQUIRE(handle_is(binary, HANDLE_BINARY_DATA));
    REQUIRE(binHandle);
    return binary_new(data->bytes, data->length, false, binHandle);
}

static aclError binary_require(const void *handle, Binary **binary)
{
    if (!handle_follow(handle, HANDLE_BINARY)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live binary", handle);
    }
    *binary = (Binary *)(uintptr_t)handle;
    return ACL_SUCCESS;
}

static void binary_free(Binary *binary)
{
    args_binary_gone(binary);
    while (binary->functions != NULL) {
        Function *function = binary->functions;
        binary->functions = function->next;
        free(function->name);
        function->name = NULL;
        handle_retire(function);
    }
    code_release(binary->code);
    pthread_mutex_destroy(&binary->lock);
    handle_retire(binary);
}

void binary_unref(Binary *const *binary)
{
    if (*binary != NULL && handle_drop(*binary)) {
        binary_free(*binary);
    }
}

/* The handle of a function or of arguments dies before the slot of its binary is used again. So if the
 * handle is still live after a reference to the binary was taken, it belongs to that binary. */
bool binary_of_part(const void *part, HandleKind kind, size_t offset, Binary **binary)
{
    if (!handle_follow(part, kind)) {
        return false;
    }
    Binary *found = *(Binary *const *)(const void *)((const char *)part + offset);
    bool held = handle_follow(found, HANDLE_BINARY);
    if (held && !handle_is(part, kind)) {
        binary_unref(&found);
        held = false;
    }
    handle_drop(part);
    *binary = held ? found : NULL;
    return held;
}

aclError function_require(const void *handle, Binary **binary)
{
    if (!binary_of_part(handle, HANDLE_FUNCTION, offsetof(Function, binary), binary)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p is not a live function", handle);
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtBinaryUnLoad(aclrtBinHandle binHandle)
{
    BINARY_REF(binary);
    REQUIRE(binHandle);
    TRY(binary_require(binHandle, &binary));
    if (!handle_kill(binary)) {
        return fail(ACL_ERROR_RT_INVALID_HANDLE, "%p was unloaded by another thread", binHandle);
    }
    pthread_mutex_lock(&binary->lock);
    args_binary_ends(binary);
    for (Function *function = binary->functions; function != NULL; function = function->next) {
        (void)handle_kill(function);
    }
    pthread_mutex_unlock(&binary->lock);
    return ACL_SUCCESS;
}

/* --- functions --- */

static Function *function_known(const Binary *binary, const char *name, bool cpu)
{
    for (Function *function = binary->functions; function != NULL; function = function->next) {
        if (function->cpu == cpu && strcmp(function->name, name) == 0) {
            return function;
        }
    }
    return NULL;
}

static void *library_symbol(const Code *code, const char *name, const char *suffix)
{
    char full[1024];
    (void)snprintf(full, sizeof full, "%s%s", name, suffix);
    return code->library == NULL ? NULL : dlsym(code->library, full);
}

static Function *function_new(Binary *binary, const char *name, uint64_t value, bool cpu)
{
    Function *function = handle_prepare(HANDLE_FUNCTION, sizeof *function);
    char *copy = strdup(name);
    if (function == NULL || copy == NULL) {
        free(copy);
        if (function != NULL) {
            handle_retire(function);
        }
        return NULL;
    }
    Code *code = binary->code;
    *function = (Function){
        .next = binary->functions, .binary = binary, .code = code, .name = copy, .cpu = cpu};
    function->address = code->kind == CODE_HOST ? library_symbol(code, name, "")
        : (char *)code->bytes + (value < code->length ? value : 0);
    if (code->kind == CODE_HOST && function->address != NULL) {
        memcpy(&function->run, &function->address, sizeof function->run);
        function->sizes = library_symbol(code, name, "_params");
    }
    binary->functions = function;
    handle_show(function);
    return function;
}

aclError acl_sim_kernel_make(const char *name, KernelCode code, const uint32_t *sizes,
    aclrtBinHandle *binary, aclrtFuncHandle *function)
{
    REQUIRE(name);
    REQUIRE(code);
    REQUIRE(binary);
    REQUIRE(function);
    Code *holder = calloc(1, sizeof *holder);
    Binary *made = holder == NULL ? NULL : handle_prepare(HANDLE_BINARY, sizeof *made);
    if (made == NULL) {
        free(holder);
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for a kernel");
    }
    atomic_init(&holder->references, 1);
    holder->kind = CODE_CALLBACK;
    made->code = holder;
    pthread_mutex_init(&made->lock, NULL);
    Function *only = function_new(made, name, 0, false);
    if (only == NULL) {
        binary_free(made);
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for a kernel");
    }
    only->run = code;
    only->sizes = sizes;
    memcpy(&only->address, &code, sizeof only->address);
    handle_show(made);
    *binary = made;
    *function = only;
    return ACL_SUCCESS;
}

/* Returns the number at the end of a kernel's name (12 for "name_12"), which is the kernel's key; 0 if there is
 * none. */
static uint64_t name_key(const char *name)
{
    const char *last = strrchr(name, '_');
    char *end;
    if (last == NULL || last[1] < '0' || last[1] > '9') {
        return 0;
    }
    unsigned long long key = strtoull(last + 1, &end, 10);
    return *end == '\0' ? (uint64_t)key : 0;
}

/* Gives the function of that name or, if the name is NULL, of that key. Its Function is made at the
 * first request. */
static aclError function_find(
    Binary *binary, const char *name, uint64_t key, aclrtFuncHandle *handle)
{
    ElfSymbol symbol;
    ElfSymbols symbols = elf64_symbols(binary->code->bytes, binary->code->length);
    Function *found = NULL;
    bool exists = false;
    pthread_mutex_lock(&binary->lock);
    while (!exists && elf64_next(&symbols, &symbol)) {
        exists = symbol.function
            && (name != NULL ? strcmp(symbol.name, name) == 0 : name_key(symbol.name) == key);
    }
    if (exists) {
        found = function_known(binary, symbol.name, false);
        found = found != NULL ? found : function_new(binary, symbol.name, symbol.value, false);
    }
    pthread_mutex_unlock(&binary->lock);
    if (found == NULL) {
        return fail(ACL_ERROR_RT_PARAM_INVALID, "the binary has no kernel '%s' (key %llu)",
            name == NULL ? "" : name, (unsigned long long)key);
    }
    *handle = found;
    return ACL_SUCCESS;
}

aclError sim_aclrtBinaryGetFunction(
    const aclrtBinHandle binHandle, const char *kernelName, aclrtFuncHandle *funcHandle)
{
    BINARY_REF(binary);
    REQUIRE(binHandle);
    REQUIRE(kernelName);
    REQUIRE(funcHandle);
    TRY(binary_require(binHandle, &binary));
    REQUIRE_RT(context_current() != NULL);
    return function_find(binary, kernelName, 0, funcHandle);
}

aclError sim_aclrtBinaryGetFunctionByEntry(
    aclrtBinHandle binHandle, uint64_t funcEntry, aclrtFuncHandle *funcHandle)
{
    BINARY_REF(binary);
    REQUIRE(binHandle);
    REQUIRE(funcHandle);
    TRY(binary_require(binHandle, &binary));
    REQUIRE_RT(context_current() != NULL);
    return function_find(binary, NULL, funcEntry, funcHandle);
}

aclError sim_aclrtRegisterCpuFunc(const aclrtBinHandle handle, const char *funcName,
    const char *kernelName, aclrtFuncHandle *funcHandle)
{
    BINARY_REF(binary);
    REQUIRE(handle);
    REQUIRE(funcName);
    REQUIRE(kernelName);
    REQUIRE(funcHandle);
    TRY(binary_require(handle, &binary));
    REQUIRE_RT(binary->code->kind == CODE_OPAQUE);
    pthread_mutex_lock(&binary->lock);
    Function *function = function_known(binary, kernelName, true);
    function = function != NULL ? function : function_new(binary, kernelName, 0, true);
    pthread_mutex_unlock(&binary->lock);
    *funcHandle = function;
    return function != NULL ? ACL_SUCCESS : fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory");
}

aclError sim_aclrtBinaryGetDevAddress(
    const aclrtBinHandle binHandle, void **binAddr, size_t *binSize)
{
    BINARY_REF(binary);
    REQUIRE(binHandle);
    REQUIRE_RT(binAddr);
    REQUIRE_RT(binSize);
    TRY(binary_require(binHandle, &binary));
    *binAddr = binary->code->bytes;
    *binSize = binary->code->length;
    return ACL_SUCCESS;
}

/* True if the program can access the variable. If the host cannot run the code, the variable's memory is
 * its bytes in the file, so they must lie inside the file. */
static bool variable_fits(const Code *code, const ElfSymbol *symbol)
{
    return code->kind == CODE_HOST
        || (symbol->value <= code->length && symbol->size <= code->length - symbol->value);
}

aclError sim_aclrtBinaryGetGlobal(
    aclrtBinHandle binHandle, const char *name, void **dptr, size_t *size)
{
    ElfSymbol symbol;
    BINARY_REF(binary);
    REQUIRE(binHandle);
    REQUIRE(name);
    REQUIRE(dptr != NULL || size != NULL);
    TRY(binary_require(binHandle, &binary));
    const Code *code = binary->code;
    ElfSymbols symbols = elf64_symbols(code->bytes, code->length);
    while (elf64_next(&symbols, &symbol)) {
        if (symbol.function || strcmp(symbol.name, name) != 0 || !variable_fits(code, &symbol)) {
            continue;
        }
        if (dptr != NULL) {
            *dptr = code->kind == CODE_HOST ? library_symbol(code, name, "")
                                            : (char *)code->bytes + symbol.value;
        }
        if (size != NULL) {
            *size = (size_t)symbol.size;
        }
        return ACL_SUCCESS;
    }
    return fail(ACL_ERROR_RT_SYMBOL_NOT_FOUND, "the binary has no variable '%s'", name);
}

aclError sim_aclrtBinarySetExceptionCallback(
    aclrtBinHandle binHandle, aclrtOpExceptionCallback callback, void *userData)
{
    BINARY_REF(binary);
    REQUIRE(binHandle);
    REQUIRE(callback);
    TRY(binary_require(binHandle, &binary));
    binary->code->on_exception = callback;
    binary->code->exception_data = userData;
    return ACL_SUCCESS;
}
