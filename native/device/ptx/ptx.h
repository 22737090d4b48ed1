/* The PTX interpreter as the device sees it: text becomes a module, a kernel of it runs over a grid of blocks. */
#ifndef GPUTAX_PTX_H
#define GPUTAX_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "include/cuda_abi.h"

struct ptx_module;
struct ptx_scratch; /* memory that launches of one context use again */

struct ptx_parameter {
    uint32_t offset, bytes;
};

struct ptx_kernel {
    const char *name;
    uint32_t parameter_count, parameter_bytes;
    const struct ptx_parameter *parameters;
    uint32_t shared_bytes; /* static */
    uint32_t local_bytes;  /* per thread */
    uint32_t register_count;
    uint32_t threads_max;
    const struct ptx_code *code;
};

struct ptx_variable { /* a .global or .const variable of the module */
    const char *name; /* NULL: declared inside of a body, where only the body knows it */
    uint64_t address;
    size_t bytes;
};

struct ptx_log {
    char text[512];
};

/* How the interpreter gets device memory and checks addresses. */
struct ptx_memory {
    void *who;
    uint64_t (*place)(void *who, size_t bytes); /* zeroed memory for variables; 0: out of memory */
    void (*give_back)(void *who, uint64_t address);
    /* Where the owner's block around [address, address + bytes) lies; false: not the owner's. */
    bool (*find)(void *who, uint64_t address, size_t bytes, bool write, uint64_t *from, uint64_t *to);
};

struct ptx_launch {
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes;
    bool is_cooperative;    /* all blocks run at once and may wait for one another */
    const void *parameters; /* parameter_bytes long */
    const struct ptx_memory *memory;
    uint64_t timeout_ns;
};

/* What loading a text may take. */
struct ptx_bounds {
    uint64_t bytes_most; /* of device memory for variables and host memory for code together */
    uint64_t timeout_ns;
    bool (*goes_on)(void *who); /* asked now and then; false: nobody waits for the module. NULL: somebody does */
    void *who;
};

enum { PTX_COOPERATIVE_BLOCKS = 16 }; /* that may run at once */
enum { PTX_CAPABILITY = 90, PTX_VERSION_MAJOR = 9 };
enum { PTX_PARAMETER_BYTES = 32764, PTX_PARAMETER_BYTES_BEFORE_8_1 = 4096 }; /* of one kernel */

CUresult ptx_load(const char *text, const struct ptx_memory *memory, const struct ptx_bounds *bounds,
                  struct ptx_module **module, struct ptx_log *log);
uint64_t ptx_bytes(const struct ptx_module *module); /* of host and device memory that it holds */
void ptx_unload(struct ptx_module *module);
size_t ptx_kernels(const struct ptx_module *module, const struct ptx_kernel **kernels);
const struct ptx_variable *ptx_variable_named(const struct ptx_module *module, const char *name);
bool ptx_owns_address(const struct ptx_module *module, uint64_t address); /* the start of its variables */
uint32_t ptx_version(const struct ptx_module *module);                    /* 94 for 9.4 */

CUresult ptx_run(const struct ptx_kernel *kernel, const struct ptx_launch *launch, struct ptx_scratch *scratch);
struct ptx_scratch *ptx_scratch_open(void);
void ptx_scratch_close(struct ptx_scratch *scratch);
void ptx_output_drain(struct ptx_scratch *scratch); /* shows what kernels have printed */
/* Code addresses may come again for other code: what the scratch remembers of a kernel is void after an unload. */
void ptx_scratch_forget(struct ptx_scratch *scratch);

#endif
