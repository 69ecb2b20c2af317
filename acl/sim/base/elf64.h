/* elf64.h: the functions and objects that a 64-bit ELF file exports, read from untrusted bytes. */
#ifndef SIM_ELF64_H
#define SIM_ELF64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ElfSymbol {
    const char *name;   /* points into the file's bytes */
    uint64_t value, size;
    bool function;      /* true for a function, false for an object */
} ElfSymbol;

/* True if the bytes are a 64-bit little-endian ELF file with a valid section table. */
bool elf64_valid(const void *bytes, size_t length);

/* True if this machine could load the file as a shared object. */
bool elf64_native(const void *bytes, size_t length);

/* An iterator over the defined global functions and objects. */
typedef struct ElfSymbols {
    const void *bytes;
    size_t length;
    uint64_t section, at; /* number of the section with the symbol table; offset of the next symbol in this table */
    uint64_t left;        /* limit of the symbols still to read; in a malformed file tables may overlap */
} ElfSymbols;

/* Returns an iterator before the first symbol; in an invalid file there are no symbols. */
ElfSymbols elf64_symbols(const void *bytes, size_t length);
/* Gives the next symbol; false after the last one. */
bool elf64_next(ElfSymbols *symbols, ElfSymbol *symbol);

#endif
