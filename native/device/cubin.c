/* Reads a cubin: an ELF file whose symbols name kernels and variables, and whose .nv.info sections say where each
 * parameter lies. The bytes are a tenant's: every offset is checked before it is followed, and because the sections of a real
 * image do not overlap, all that is read of them together may not be longer than the image. */
#include "device/cubin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cubin_reader.h"

enum {
    MACHINE_CUDA = 190,
    ABI_WIDE_FLAGS = 8,          /* from here on the architecture lies in the second byte of the flags */
    SECTION_INFO = 0x70000000,   /* .nv.info and .nv.info.KERNEL */
    SYMBOL_IS_KERNEL = 0x10,     /* in st_other */
    HOST_BYTES_MOST = 512 << 20, /* as for PTX */
    NAME_MOST = 1 << 15,         /* names of templates are long: 3 KiB and more */
    REGISTERS_OF_A_BLOCK = 65536,
    WARP = 32,
    RESERVED_SHARED_BYTES = 1024, /* from sm_90 on a kernel's own begin behind these, and its section counts them */
};

bool cubin_fail(struct reader *r, CUresult result, const char *why)
{
    if (r->result == CUDA_SUCCESS) {
        r->result = result;
        snprintf(r->log->text, sizeof r->log->text, "binary image: %s", why);
    }
    return false;
}

void *cubin_table(struct reader *r, struct pool *pool, size_t count, size_t each)
{
    size_t bytes;
    void *memory = NULL;
    if (!__builtin_mul_overflow(count, each, &bytes))
        memory = pool_take(pool, &r->budget, bytes ? bytes : 1);
    if (!memory)
        cubin_fail(r, CUDA_ERROR_OUT_OF_MEMORY, "its tables do not fit into the memory that it may take");
    return memory;
}

/* The bytes of a section that has bytes, or NULL. */
const uint8_t *cubin_contents(const struct reader *r, const Elf64_Shdr *section)
{
    bool inside = section->sh_type != SHT_NOBITS && section->sh_offset <= r->bytes &&
                  section->sh_size <= r->bytes - section->sh_offset;
    return inside ? r->image + section->sh_offset : NULL;
}

/* The string at this place of a table, or NULL if it is too long or does not end there. */
static const char *string_at(const char *table, size_t bytes, uint32_t at)
{
    if (at >= bytes)
        return NULL;
    size_t most = bytes - at < NAME_MOST ? bytes - at : NAME_MOST;
    return strnlen(table + at, most) < most ? table + at : NULL;
}

static bool section_is(const struct reader *r, const struct section *section, const char *name)
{
    size_t bytes = strlen(name) + 1, at = section->header.sh_name;
    return at <= r->section_names_bytes && bytes <= r->section_names_bytes - at &&
           memcmp(r->section_names + at, name, bytes) == 0;
}

static bool read_header(struct reader *r, Elf64_Ehdr *header)
{
    if (r->bytes < sizeof *header)
        return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "shorter than its header");
    memcpy(header, r->image, sizeof *header);
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_ident[EI_DATA] != ELFDATA2LSB || header->e_machine != MACHINE_CUDA)
        return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "not a cubin of 64 bits");
    uint32_t flags = header->e_flags;
    uint32_t capability = header->e_ident[EI_ABIVERSION] >= ABI_WIDE_FLAGS ? flags >> 8 & 0xff : flags & 0xff;
    if (capability / 10 != PTX_CAPABILITY / 10 || capability > PTX_CAPABILITY)
        return cubin_fail(r, CUDA_ERROR_NO_BINARY_FOR_GPU, "made for another architecture than the device's");
    if (header->e_shnum == 0 || header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff > r->bytes ||
        header->e_shnum > (r->bytes - header->e_shoff) / sizeof(Elf64_Shdr))
        return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "its table of sections lies outside of it");
    return true;
}

static bool read_sections(struct reader *r)
{
    Elf64_Ehdr header;
    if (!read_header(r, &header))
        return false;
    r->section_count = header.e_shnum;
    r->sections = cubin_table(r, r->scratch, r->section_count, sizeof *r->sections);
    if (!r->sections)
        return false;
    for (uint32_t i = 0; i < r->section_count; i++)
        memcpy(&r->sections[i].header, r->image + header.e_shoff + i * sizeof(Elf64_Shdr), sizeof(Elf64_Shdr));
    if (header.e_shstrndx < r->section_count) {
        const Elf64_Shdr *names = &r->sections[header.e_shstrndx].header;
        r->section_names = (const char *)cubin_contents(r, names);
        r->section_names_bytes = r->section_names ? names->sh_size : 0;
    }
    for (uint32_t i = 1; i < r->section_count; i++) {
        const Elf64_Shdr *own = &r->sections[i].header;
        if (own->sh_info >= r->section_count)
            continue;
        if (own->sh_type == SECTION_INFO)
            r->sections[own->sh_info].info = i;
        else if (own->sh_type == SHT_NOBITS)
            r->sections[own->sh_info].shared = i;
    }
    return true;
}

static bool read_symbol_table(struct reader *r)
{
    for (uint32_t i = 1; i < r->section_count; i++) {
        const Elf64_Shdr *table = &r->sections[i].header;
        if (table->sh_type != SHT_SYMTAB || table->sh_link >= r->section_count)
            continue;
        const Elf64_Shdr *names = &r->sections[table->sh_link].header;
        r->symbols = cubin_contents(r, table);
        r->symbol_names = (const char *)cubin_contents(r, names);
        if (!r->symbols || !r->symbol_names || table->sh_entsize != sizeof(Elf64_Sym))
            return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "its table of symbols is damaged");
        r->symbol_count = table->sh_size / sizeof(Elf64_Sym);
        r->symbol_names_bytes = names->sh_size;
        return true;
    }
    return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "it has no table of symbols");
}

Elf64_Sym cubin_symbol(const struct reader *r, size_t index)
{
    Elf64_Sym symbol;
    memcpy(&symbol, r->symbols + index * sizeof symbol, sizeof symbol);
    return symbol;
}

/* The section that the symbol lies in, or NULL. */
struct section *cubin_home(const struct reader *r, const Elf64_Sym *symbol)
{
    return symbol->st_shndx != SHN_UNDEF && symbol->st_shndx < r->section_count ? &r->sections[symbol->st_shndx] : NULL;
}

static char *kept_name(struct reader *r, const Elf64_Sym *symbol)
{
    const char *name = string_at(r->symbol_names, r->symbol_names_bytes, symbol->st_name);
    size_t bytes = name ? strlen(name) + 1 : 0;
    if (!name || bytes > r->names_left) {
        cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "the name of a symbol lies outside of its table, or is too long");
        return NULL;
    }
    r->names_left -= bytes;
    char *kept = cubin_table(r, r->cubin->pool, bytes, 1);
    if (kept)
        memcpy(kept, name, bytes);
    return kept;
}

/* --- kernels and variables --- */

static bool is_kernel(const struct reader *r, const Elf64_Sym *symbol)
{
    return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && (symbol->st_other & SYMBOL_IS_KERNEL) && cubin_home(r, symbol);
}

static bool read_kernel(struct reader *r, const Elf64_Sym *symbol, struct ptx_kernel *kernel)
{
    const struct section *code = cubin_home(r, symbol);
    kernel->threads_max = THREADS_MOST;
    kernel->register_count = code->header.sh_info >> 24; /* .nv.info has the last word */
    kernel->name = kept_name(r, symbol);
    if (!kernel->name || (code->info && !cubin_kernel_info(r, &r->sections[code->info], kernel)))
        return false;
    if (code->shared) {
        uint64_t bytes = r->sections[code->shared].header.sh_size;
        bytes = bytes > RESERVED_SHARED_BYTES ? bytes - RESERVED_SHARED_BYTES : 0;
        kernel->shared_bytes = bytes > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)bytes;
    }
    return true;
}

/* As many threads as have room for their registers, which are given out to whole warps by eights. */
static void limit_threads(struct ptx_kernel *kernel)
{
    uint32_t of_thread = (kernel->register_count + 7) / 8 * 8;
    if (!of_thread || of_thread > REGISTERS_OF_A_BLOCK / WARP)
        return;
    uint32_t threads = REGISTERS_OF_A_BLOCK / (of_thread * WARP) * WARP;
    if (threads < kernel->threads_max)
        kernel->threads_max = threads;
}

static bool read_kernels(struct reader *r)
{
    struct cubin *cubin = r->cubin;
    for (size_t i = 0; i < r->symbol_count; i++) { /* one kernel for each section of code */
        Elf64_Sym symbol = cubin_symbol(r, i);
        if (is_kernel(r, &symbol) && !cubin_home(r, &symbol)->kernel)
            cubin_home(r, &symbol)->kernel = (uint32_t)++cubin->kernel_count;
    }
    cubin->kernels = cubin_table(r, cubin->pool, cubin->kernel_count, sizeof *cubin->kernels);
    if (!cubin->kernels)
        return false;
    for (size_t i = 0; i < r->symbol_count; i++) {
        Elf64_Sym symbol = cubin_symbol(r, i);
        if (!is_kernel(r, &symbol))
            continue;
        struct ptx_kernel *kernel = &cubin->kernels[cubin_home(r, &symbol)->kernel - 1];
        if (!kernel->name && !read_kernel(r, &symbol, kernel))
            return false;
    }
    for (uint32_t i = 1; i < r->section_count; i++)
        if (r->sections[i].header.sh_type == SECTION_INFO && section_is(r, &r->sections[i], ".nv.info") &&
            !cubin_common_info(r, &r->sections[i]))
            return false;
    for (size_t i = 0; i < cubin->kernel_count; i++)
        limit_threads(&cubin->kernels[i]);
    return true;
}

static bool holds_variables(const struct reader *r, const struct section *section)
{
    return section_is(r, section, ".nv.global") || section_is(r, section, ".nv.global.init") ||
           section_is(r, section, ".nv.constant3");
}

static bool place_section(struct reader *r, struct section *section)
{
    struct cubin *cubin = r->cubin;
    const Elf64_Shdr *header = &section->header;
    const uint8_t *first = cubin_contents(r, header);
    if (header->sh_type != SHT_NOBITS && !first)
        return cubin_fail(r, CUDA_ERROR_INVALID_IMAGE, "a section of variables lies outside of it");
    if (header->sh_size > r->budget.left || !(section->address = r->memory->place(r->memory->who, header->sh_size)))
        return cubin_fail(r, CUDA_ERROR_OUT_OF_MEMORY, "its variables do not fit into the memory that it may take");
    r->budget.left -= header->sh_size;
    cubin->device_bytes += header->sh_size;
    cubin->placed[cubin->placed_count++] = section->address;
    if (first)
        memcpy((void *)(uintptr_t)section->address, first, header->sh_size);
    return true;
}

static bool is_variable(const struct reader *r, const Elf64_Sym *symbol)
{
    const struct section *home = cubin_home(r, symbol);
    return ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT && home && home->address &&
           symbol->st_value <= home->header.sh_size && symbol->st_size <= home->header.sh_size - symbol->st_value;
}

static bool read_variables(struct reader *r)
{
    struct cubin *cubin = r->cubin;
    size_t count = 0;
    for (uint32_t i = 1; i < r->section_count; i++)
        count += r->sections[i].header.sh_size && holds_variables(r, &r->sections[i]);
    cubin->placed = cubin_table(r, cubin->pool, count, sizeof *cubin->placed);
    if (!cubin->placed)
        return false;
    for (uint32_t i = 1; i < r->section_count; i++)
        if (r->sections[i].header.sh_size && holds_variables(r, &r->sections[i]) && !place_section(r, &r->sections[i]))
            return false;
    count = 0;
    for (size_t i = 0; i < r->symbol_count; i++) {
        Elf64_Sym symbol = cubin_symbol(r, i);
        count += is_variable(r, &symbol);
    }
    cubin->variables = cubin_table(r, cubin->pool, count, sizeof *cubin->variables);
    for (size_t i = 0; cubin->variables && i < r->symbol_count; i++) {
        Elf64_Sym symbol = cubin_symbol(r, i);
        if (!is_variable(r, &symbol))
            continue;
        const char *name = kept_name(r, &symbol);
        if (!name)
            return false;
        cubin->variables[cubin->variable_count++] =
            (struct ptx_variable){name, cubin_home(r, &symbol)->address + symbol.st_value, symbol.st_size};
    }
    return cubin->variables != NULL;
}

CUresult cubin_load(const void *image, size_t bytes, const struct ptx_memory *memory, uint64_t bytes_most,
                    struct cubin **out, struct ptx_log *log)
{
    struct cubin *cubin = calloc(1, sizeof *cubin);
    struct pool *kept = pool_open(), *scratch = pool_open();
    struct reader r = {
        .image = image,
        .bytes = bytes,
        .cubin = cubin,
        .memory = memory,
        .budget = {.host_left = HOST_BYTES_MOST, .left = bytes_most},
        .scratch = scratch,
        .info_left = bytes,
        .names_left = bytes,
        .log = log,
        .result = CUDA_SUCCESS,
    };
    if (!cubin || !kept || !scratch) {
        free(cubin);
        pool_close(kept);
        pool_close(scratch);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *cubin = (struct cubin){.pool = kept, .memory = *memory};
    bool good = read_sections(&r) && read_symbol_table(&r) && read_kernels(&r) && read_variables(&r);
    pool_close(scratch);
    if (!good) {
        cubin_unload(cubin);
        return r.result;
    }
    *out = cubin;
    return CUDA_SUCCESS;
}

void cubin_unload(struct cubin *cubin)
{
    for (size_t i = 0; i < cubin->placed_count; i++)
        cubin->memory.give_back(cubin->memory.who, cubin->placed[i]);
    pool_close(cubin->pool);
    free(cubin);
}

uint64_t cubin_bytes(const struct cubin *cubin)
{
    return sizeof *cubin + pool_bytes(cubin->pool) + cubin->device_bytes;
}

size_t cubin_kernels(const struct cubin *cubin, const struct ptx_kernel **kernels)
{
    if (kernels)
        *kernels = cubin->kernels;
    return cubin->kernel_count;
}

const struct ptx_variable *cubin_variable_named(const struct cubin *cubin, const char *name)
{
    for (size_t i = 0; i < cubin->variable_count; i++)
        if (strcmp(cubin->variables[i].name, name) == 0)
            return &cubin->variables[i];
    return NULL;
}

bool cubin_owns_address(const struct cubin *cubin, uint64_t address)
{
    for (size_t i = 0; i < cubin->placed_count; i++)
        if (cubin->placed[i] == address)
            return true;
    return false;
}
