/* copy_symbol.c: copies to and from device variables that a program names by their symbols.

   A symbol is known only if the program has registered device code that contains it, and only programs
   made with the vendor's compiler do so. The simulator knows no symbols, so the calls return the error
   of aclrtGetSymbolAddress: no such symbol.

   Thread rule: there is no state; any thread. */
#include "generated/exports.h"

/* Gives the address of `count` bytes at `offset` of a symbol's variable; 107000 if they are not inside the variable. */
static aclError symbol_part(
    const char *function, const void *symbol, size_t offset, size_t count, char **address)
{
    void *begin;
    size_t size;
    TRY(sim_aclrtGetSymbolAddress(symbol, &begin));
    TRY(sim_aclrtGetSymbolSize(symbol, &size));
    if (offset > size || count > size - offset) {
        return error_set(function, ACL_ERROR_RT_PARAM_INVALID,
            "%zu bytes at offset %zu are not inside the symbol's %zu bytes", count, offset, size);
    }
    *address = (char *)begin + offset;
    return ACL_SUCCESS;
}

aclError sim_aclrtMemcpyToSymbol(
    const void *symbol, const void *src, size_t count, size_t offset, aclrtMemcpyKind kind)
{
    char *to;
    REQUIRE(symbol);
    REQUIRE(src);
    TRY(symbol_part(__func__, symbol, offset, count, &to));
    return sim_aclrtMemcpy(to, count, src, count, kind);
}

aclError sim_aclrtMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count,
    size_t offset, aclrtMemcpyKind kind, aclrtStream stream)
{
    char *to;
    REQUIRE(symbol);
    REQUIRE(src);
    TRY(symbol_part(__func__, symbol, offset, count, &to));
    return sim_aclrtMemcpyAsync(to, count, src, count, kind, stream);
}

aclError sim_aclrtMemcpyFromSymbol(void *dst, size_t dstMax, const void *symbol, size_t count,
    size_t offset, aclrtMemcpyKind kind)
{
    char *from;
    REQUIRE(dst);
    REQUIRE(symbol);
    TRY(symbol_part(__func__, symbol, offset, count, &from));
    return sim_aclrtMemcpy(dst, dstMax, from, count, kind);
}

aclError sim_aclrtMemcpyFromSymbolAsync(void *dst, size_t dstMax, const void *symbol, size_t count,
    size_t offset, aclrtMemcpyKind kind, aclrtStream stream)
{
    char *from;
    REQUIRE(dst);
    REQUIRE(symbol);
    TRY(symbol_part(__func__, symbol, offset, count, &from));
    return sim_aclrtMemcpyAsync(dst, dstMax, from, count, kind, stream);
}
