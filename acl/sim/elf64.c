/* elf64.c: see elf64.h. Every offset is checked against the file's length before it is used. */
#include "elf64.h"

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

/* The name, if it ends inside its string table. */
static const char *name_at(const void *bytes, const Elf64_Shdr *strings, uint32_t offset)
{
    const char *name = (const char *)bytes + strings->sh_offset + offset;
    if (strings->sh_type != SHT_STRTAB || offset >= strings->sh_size) {
        return NULL;
    }
    return memchr(name, '\0', strings->sh_size - offset) == NULL ? NULL : name;
}

/* The n-th wanted symbol of one table; *index counts down by what the table has. */
static bool table_symbol(const void *bytes, const Elf64_Shdr *table, const Elf64_Shdr *strings,
    size_t *index, ElfSymbol *out)
{
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, (const char *)bytes + table->sh_offset + at, sizeof symbol);
        unsigned type = ELF64_ST_TYPE(symbol.st_info), bind = ELF64_ST_BIND(symbol.st_info);
        bool wanted = (type == STT_FUNC || type == STT_OBJECT)
            && (bind == STB_GLOBAL || bind == STB_WEAK) && symbol.st_shndx != SHN_UNDEF;
        const char *name = wanted ? name_at(bytes, strings, symbol.st_name) : NULL;
        if (name != NULL && name[0] != '\0' && (*index)-- == 0) {
            *out = (ElfSymbol){name, symbol.st_value, symbol.st_size, type == STT_FUNC};
            return true;
        }
    }
    return false;
}

bool elf64_symbol(const void *bytes, size_t length, size_t index, ElfSymbol *symbol)
{
    Elf64_Ehdr header;
    Elf64_Shdr table, strings;
    Elf64_Word wanted = elf64_native(bytes, length) ? SHT_DYNSYM : SHT_SYMTAB;
    if (!elf64_valid(bytes, length) || !header_read(bytes, length, &header)) {
        return false;
    }
    for (uint64_t s = 0; s < header.e_shnum; s++) {
        if (section_read(bytes, length, &header, s, &table) && table.sh_type == wanted
            && section_read(bytes, length, &header, table.sh_link, &strings)
            && table_symbol(bytes, &table, &strings, &index, symbol)) {
            return true;
        }
    }
    return false;
}
