/* fuzz_binary.c: reads a file of unknown origin as a kernel binary: its symbols are read, and it is loaded.
 * A file that this machine could run is not loaded, because loading a library runs its code. */
#include "fuzz.h"

#include "base/elf64.h"

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    device_start();
    return 0;
}

/* Reads all bytes, so that a wrong address or size is detected. */
static void sum_up(const void *address, size_t size)
{
    const uint8_t *bytes = address;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) {
        sum = (uint8_t)(sum + bytes[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    aclrtBinHandle binary;
    aclrtFuncHandle function;
    ElfSymbol symbol;
    ElfSymbols symbols = elf64_symbols(bytes, length);
    char name[64];
    void *address;
    size_t size, other;
    if (elf64_native(bytes, length)
        || aclrtBinaryLoadFromData(bytes, length, NULL, &binary) != ACL_SUCCESS) {
        return 0;
    }
    for (int left = 64; left > 0 && elf64_next(&symbols, &symbol); left--) {
        snprintf(name, sizeof name, "%s", symbol.name);
        if (aclrtBinaryGetFunction(binary, name, &function) == ACL_SUCCESS) {
            (void)aclrtGetFunctionSize(function, &size, &other);
        }
        (void)aclrtBinaryGetFunctionByEntry(binary, (uint64_t)left, &function);
        if (aclrtBinaryGetGlobal(binary, name, &address, &size) == ACL_SUCCESS) {
            sum_up(address, size);
        }
    }
    if (aclrtBinaryGetDevAddress(binary, &address, &size) == ACL_SUCCESS) {
        sum_up(address, size);
    }
    must(aclrtBinaryUnLoad(binary));
    return 0;
}
