/* elf64.h: the functions and objects that a 64-bit ELF file exports, read from untrusted bytes. */
#ifndef SIM_ELF64_H
#define SIM_ELF64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ElfSymbol {
    const char *name;   /* inside the file's bytes */
    uint64_t value, size;
    bool function;      /* else an object */
} ElfSymbol;

/* Whether the bytes are a 64-bit little-endian ELF file with a sane section table. */
bool elf64_valid(const void *bytes, size_t length);

/* Whether this machine could load it as a shared object. */
bool elf64_native(const void *bytes, size_t length);

/* The n-th defined global function or object; false past the last one. */
bool elf64_symbol(const void *bytes, size_t length, size_t index, ElfSymbol *symbol);

#endif
