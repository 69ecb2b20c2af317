/* elf64.c: see elf64.h. Every offset is checked against the file's length before it is used. */
#include "base/elf64.h"

#include <elf.h>
#include <string.h>

static bool inside(size_t length, uint64_t offset, uint64_t size)
{
    return offset <= length && size <= length - offset;
}

static bool header_read(const void *bytes, size_t length, Elf64_Ehdr *header)
{
    if (length < sizeof *header) {
        return false;
    }
    memcpy(header, bytes, sizeof *header);
    return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 && header->e_ident[EI_CLASS] == ELFCLASS64
        && header->e_ident[EI_DATA] == ELFDATA2LSB;
}

bool elf64_valid(const void *bytes, size_t length)
{
    Elf64_Ehdr header;
    return header_read(bytes, length, &header) && header.e_shentsize == sizeof(Elf64_Shdr)
        && inside(length, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr));
}

bool elf64_native(const void *bytes, size_t length)
{
    Elf64_Ehdr header;
#if defined(__x86_64__)
    const Elf64_Half machine = EM_X86_64;
#elif defined(__aarch64__)
    const Elf64_Half machine = EM_AARCH64;
#else
    const Elf64_Half machine = EM_NONE;
#endif
    return header_read(bytes, length, &header) && header.e_machine == machine
        && header.e_type == ET_DYN;
}

static bool section_read(
    const void *bytes, size_t length, const Elf64_Ehdr *header, uint64_t index, Elf64_Shdr *section)
{
    uint64_t at = header->e_shoff + index * sizeof *section;
    if (index >= header->e_shnum || !inside(length, at, sizeof *section)) {
        return false;
    }
    memcpy(section, (const char *)bytes + at, sizeof *section);
    return section->sh_type == SHT_NOBITS || inside(length, section->sh_offset, section->sh_size);
}

/* Returns the name at `offset` of a string table; NULL if the offset is outside the table, or if the table
   does not end with a zero byte (then a name could continue behind it). */
static const char *name_at(const void *bytes, const Elf64_Shdr *strings, uint32_t offset)
{
    const char *table = (const char *)bytes + strings->sh_offset;
    bool usable = strings->sh_type == SHT_STRTAB && offset < strings->sh_size
        && table[strings->sh_size - 1] == '\0';
    return usable ? table + offset : NULL;
}

static bool symbol_read(
    const void *bytes, const Elf64_Sym *symbol, const Elf64_Shdr *strings, ElfSymbol *out)
{
    unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);
    bool wanted = (type == STT_FUNC || type == STT_OBJECT)
        && (bind == STB_GLOBAL || bind == STB_WEAK) && symbol->st_shndx != SHN_UNDEF;
    const char *name = wanted ? name_at(bytes, strings, symbol->st_name) : NULL;
    if (name == NULL || name[0] == '\0') {
        return false;
    }
    *out = (ElfSymbol){name, symbol->st_value, symbol->st_size, type == STT_FUNC};
    return true;
}

/* Gives the next symbol of one table that is a defined global function or object. */
static bool table_next(
    ElfSymbols *symbols, const Elf64_Shdr *table, const Elf64_Shdr *strings, ElfSymbol *out)
{
    while (symbols->left != 0 && symbols->at + sizeof(Elf64_Sym) <= table->sh_size) {
        Elf64_Sym symbol;
        const char *bytes = symbols->bytes;
        memcpy(&symbol, bytes + table->sh_offset + symbols->at, sizeof symbol);
        symbols->at += sizeof symbol;
        symbols->left--;
        if (symbol_read(bytes, &symbol, strings, out)) {
            return true;
        }
    }
    return false;
}

ElfSymbols elf64_symbols(const void *bytes, size_t length)
{
    bool valid = elf64_valid(bytes, length);
    return (ElfSymbols){bytes, length, 0, 0, valid ? length / sizeof(Elf64_Sym) : 0};
}

bool elf64_next(ElfSymbols *symbols, ElfSymbol *symbol)
{
    Elf64_Ehdr header;
    Elf64_Shdr table, strings;
    size_t length = symbols->length;
    Elf64_Word wanted = elf64_native(symbols->bytes, length) ? SHT_DYNSYM : SHT_SYMTAB;
    if (symbols->left == 0 || !header_read(symbols->bytes, length, &header)) {
        return false;
    }
    for (; symbols->section < header.e_shnum; symbols->section++, symbols->at = 0) {
        if (section_read(symbols->bytes, length, &header, symbols->section, &table)
            && table.sh_type == wanted
            && section_read(symbols->bytes, length, &header, table.sh_link, &strings)
            && table_next(symbols, &table, &strings, symbol)) {
            return true;
        }
    }
    return false;
}
