/* Puts a compiled object into memory: segments, relocations, rights. It takes no path and opens no file, which a confined
 * process cannot; the functions of libc and libm that the code calls are this library's own.
 *
 * The object is one of our own compiler's. Offsets are checked all the same: a mistake is a kernel that is interpreted. */
#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/compile/build.h"

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64, RELATIVE = R_X86_64_RELATIVE, ABSOLUTE = R_X86_64_64 };
enum { IN_TABLE = R_X86_64_GLOB_DAT, IN_CALLS = R_X86_64_JUMP_SLOT };
#else
enum { MACHINE = EM_AARCH64, RELATIVE = R_AARCH64_RELATIVE, ABSOLUTE = R_AARCH64_ABS64 };
enum { IN_TABLE = R_AARCH64_GLOB_DAT, IN_CALLS = R_AARCH64_JUMP_SLOT };
#endif

enum { SEGMENTS_MOST = 16, PAGE = 4096 };
#define SPAN_MOST ((uint64_t)OFFICE_OBJECT_MOST * 2)

struct image {
    char *at;
    uint64_t bytes;
    uint64_t values[DT_JMPREL + 1]; /* of the dynamic section, those that matter here */
};

static bool is_inside(uint64_t whole, uint64_t from, uint64_t bytes)
{
    return from <= whole && bytes <= whole - from;
}

/* The headers of the segments; NULL: this is not an object for this machine. */
static const Elf64_Phdr *read_segments(const char *object, size_t bytes, Elf64_Ehdr *head, Elf64_Phdr *segments)
{
    if (bytes < sizeof *head)
        return NULL;
    memcpy(head, object, sizeof *head);
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_ident[EI_CLASS] != ELFCLASS64 ||
        head->e_machine != MACHINE || head->e_type != ET_DYN || head->e_phnum > SEGMENTS_MOST ||
        !is_inside(bytes, head->e_phoff, (uint64_t)head->e_phnum * sizeof *segments))
        return NULL;
    memcpy(segments, object + head->e_phoff, head->e_phnum * sizeof *segments);
    return segments;
}

static bool copy_segments(struct image *image, const char *object, size_t bytes, const Elf64_Phdr *segments,
                          unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *one = &segments[i];
        if (one->p_type != PT_LOAD)
            continue;
        if (!is_inside(bytes, one->p_offset, one->p_filesz) || one->p_filesz > one->p_memsz ||
            !is_inside(SPAN_MOST, one->p_vaddr, one->p_memsz) || (one->p_flags & (PF_W | PF_X)) == (PF_W | PF_X))
            return false;
        image->bytes = one->p_vaddr + one->p_memsz > image->bytes ? one->p_vaddr + one->p_memsz : image->bytes;
    }
    image->bytes = (image->bytes + PAGE - 1) & ~(uint64_t)(PAGE - 1);
    void *at = mmap(NULL, image->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (image->bytes == 0 || at == MAP_FAILED)
        return false;
    image->at = at;
    for (unsigned i = 0; i < count; i++)
        if (segments[i].p_type == PT_LOAD)
            memcpy(image->at + segments[i].p_vaddr, object + segments[i].p_offset, segments[i].p_filesz);
    return true;
}

static bool read_dynamic(struct image *image, const Elf64_Phdr *segments, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *one = &segments[i];
        if (one->p_type == PT_TLS ||
            (one->p_type == PT_DYNAMIC && !is_inside(image->bytes, one->p_vaddr, one->p_memsz)))
            return false;
        for (uint64_t at = 0; one->p_type == PT_DYNAMIC && at + sizeof(Elf64_Dyn) <= one->p_memsz;
             at += sizeof(Elf64_Dyn)) {
            Elf64_Dyn entry;
            memcpy(&entry, image->at + one->p_vaddr + at, sizeof entry);
            if (entry.d_tag > 0 && entry.d_tag <= DT_JMPREL)
                image->values[entry.d_tag] = entry.d_un.d_val;
        }
    }
    return true;
}

/* Where a symbol of the object is: inside of it, or a function of this process. */
static bool find_symbol(const struct image *image, uint64_t number, uint64_t *address)
{
    uint64_t table = image->values[DT_SYMTAB], names = image->values[DT_STRTAB], room = image->values[DT_STRSZ];
    Elf64_Sym symbol;
    if (number > image->bytes / sizeof symbol || !is_inside(image->bytes, table, (number + 1) * sizeof symbol) ||
        !is_inside(image->bytes, names, room))
        return false;
    memcpy(&symbol, image->at + table + number * sizeof symbol, sizeof symbol);
    if (symbol.st_shndx != SHN_UNDEF) {
        *address = (uint64_t)(uintptr_t)image->at + symbol.st_value;
        return is_inside(image->bytes, symbol.st_value, 0);
    }
    const char *name = image->at + names + symbol.st_name;
    if (symbol.st_name >= room || memchr(name, 0, room - symbol.st_name) == NULL)
        return false;
    *address = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, name);
    return *address != 0;
}

static bool relocate(const struct image *image, uint64_t from, uint64_t bytes)
{
    if (!is_inside(image->bytes, from, bytes))
        return false;
    for (uint64_t at = from; at + sizeof(Elf64_Rela) <= from + bytes; at += sizeof(Elf64_Rela)) {
        Elf64_Rela one;
        uint64_t value = (uint64_t)(uintptr_t)image->at;
        memcpy(&one, image->at + at, sizeof one);
        switch (ELF64_R_TYPE(one.r_info)) {
        case RELATIVE:
            break;
        case ABSOLUTE:
        case IN_TABLE:
        case IN_CALLS:
            if (!find_symbol(image, ELF64_R_SYM(one.r_info), &value))
                return false;
            break;
        default:
            return false;
        }
        value += (uint64_t)one.r_addend;
        if (!is_inside(image->bytes, one.r_offset, sizeof value))
            return false;
        memcpy(image->at + one.r_offset, &value, sizeof value);
    }
    return true;
}

/* Whole pages; the linker gives no page to two segments of different rights. */
static bool protect(const struct image *image, const Elf64_Phdr *segments, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const Elf64_Phdr *one = &segments[i];
        uint64_t from = one->p_vaddr & ~(uint64_t)(PAGE - 1);
        int rights = (one->p_flags & PF_R ? PROT_READ : 0) | (one->p_flags & PF_W ? PROT_WRITE : 0) |
                     (one->p_flags & PF_X ? PROT_EXEC : 0);
        if (one->p_type == PT_LOAD && mprotect(image->at + from, one->p_vaddr + one->p_memsz - from, rights) != 0)
            return false;
    }
    return true;
}

struct code *code_load(const char *object, size_t bytes)
{
    Elf64_Ehdr head;
    Elf64_Phdr segments[SEGMENTS_MOST];
    struct image image = {0};
    struct code *code = calloc(1, sizeof *code);
    if (code && read_segments(object, bytes, &head, segments) &&
        copy_segments(&image, object, bytes, segments, head.e_phnum) && read_dynamic(&image, segments, head.e_phnum) &&
        relocate(&image, image.values[DT_RELA], image.values[DT_RELASZ]) &&
        relocate(&image, image.values[DT_JMPREL], image.values[DT_PLTRELSZ]) && head.e_entry != 0 &&
        is_inside(image.bytes, head.e_entry, 1) && protect(&image, segments, head.e_phnum)) {
        __builtin___clear_cache(image.at, image.at + image.bytes);
        void *entry = image.at + head.e_entry;
        *code = (struct code){.at = image.at, .bytes = image.bytes};
        memcpy(&code->run, &entry, sizeof code->run);
        return code;
    }
    if (image.at)
        munmap(image.at, image.bytes);
    free(code);
    return NULL;
}

void code_unload(struct code *code)
{
    if (!code)
        return;
    munmap(code->at, code->bytes);
    free(code);
}
