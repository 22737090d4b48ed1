/* What is being read of a cubin, for those who read its parts. */
#ifndef GPUTAX_DEVICE_CUBIN_READER_H
#define GPUTAX_DEVICE_CUBIN_READER_H

#include <elf.h>

#include "device/cubin.h"
#include "device/ptx/build.h"

enum { THREADS_MOST = 1024 }; /* of a block */

struct section {
    Elf64_Shdr header;
    uint32_t info, shared; /* of a kernel's code: the sections that say more of it; 0: none */
    uint32_t kernel;       /* 1: the first */
    uint64_t address;      /* of variables: where they were placed */
};

struct cubin {
    struct pool *pool;
    struct ptx_memory memory;
    struct ptx_kernel *kernels;
    size_t kernel_count;
    struct ptx_variable *variables;
    size_t variable_count;
    uint64_t *placed; /* where sections of variables lie */
    size_t placed_count;
    uint64_t device_bytes;
};

struct reader {
    const uint8_t *image;
    size_t bytes;
    struct cubin *cubin;
    const struct ptx_memory *memory;
    struct budget budget;
    struct pool *scratch;
    struct section *sections;
    uint32_t section_count;
    const char *section_names, *symbol_names;
    size_t section_names_bytes, symbol_names_bytes;
    const uint8_t *symbols;
    size_t symbol_count;
    size_t info_left, names_left; /* what may still be read of both */
    struct ptx_log *log;
    CUresult result;
};

bool cubin_fail(struct reader *r, CUresult result, const char *why); /* false, and the first reason is kept */
void *cubin_table(struct reader *r, struct pool *pool, size_t count,
                  size_t each); /* NULL, which fails, without memory */
const uint8_t *cubin_contents(const struct reader *r,
                              const Elf64_Shdr *section); /* NULL: it has no bytes in the image */
Elf64_Sym cubin_symbol(const struct reader *r, size_t index);
struct section *cubin_home(const struct reader *r, const Elf64_Sym *symbol); /* where the symbol lies, or NULL */

/* What a section .nv.info says: of one kernel, and of all of them by their symbols. */
bool cubin_kernel_info(struct reader *r, const struct section *section, struct ptx_kernel *kernel);
bool cubin_common_info(struct reader *r, const struct section *section);

#endif
