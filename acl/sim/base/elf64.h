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

/* True if the bytes are a 64-bit little-endian ELF file with a sane section table. */
bool elf64_valid(const void *bytes, size_t length);

/* True if this machine could load it as a shared object. */
bool elf64_native(const void *bytes, size_t length);

/* Goes over the defined global functions and objects. */
typedef struct ElfSymbols {
    const void *bytes;
    size_t length;
    uint64_t section, at; /* the table's number, and the offset of the next symbol in it */
    uint64_t left;        /* symbols to look at: tables may overlap, and no file has more than fit */
} ElfSymbols;

/* Before the first symbol; a file that is not valid has none. */
ElfSymbols elf64_symbols(const void *bytes, size_t length);
/* The next one; false behind the last. */
bool elf64_next(ElfSymbols *symbols, ElfSymbol *symbol);

#endif
