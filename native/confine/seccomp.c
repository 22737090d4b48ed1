/* The filter as a BPF program: one comparison for each row, a look at one argument where the row asks for it. */
#include "confine/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
enum { ARCHITECTURE = (int)AUDIT_ARCH_X86_64 };
#define X32_CALLS 0x40000000u /* a second interface with other numbers */
#elif defined(__aarch64__)
enum { ARCHITECTURE = (int)AUDIT_ARCH_AARCH64 };
#endif

enum { INSTRUCTIONS_MOST = 1024, OF_A_ROW = 6, AROUND = 8 };

struct program {
    struct sock_filter at[INSTRUCTIONS_MOST];
    unsigned short count;
};

static void put(struct program *program, unsigned int code, uint8_t yes, uint8_t no, uint32_t value)
{
    program->at[program->count++] = (struct sock_filter){(uint16_t)code, yes, no, value};
}

static void load(struct program *program, size_t offset)
{
    put(program, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

/* The number of the call is in the accumulator before and, if the row does not match, behind it. */
static void put_row(struct program *program, const struct call_row *row, uint32_t action)
{
    if (row->error != 0)
        action = SECCOMP_RET_ERRNO | (uint32_t)row->error;
    if (row->rule == ANY_ARGUMENTS) {
        put(program, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)row->number);
        put(program, BPF_RET | BPF_K, 0, 0, action);
        return;
    }
    bool masks = row->rule == ARGUMENT_HAS || row->rule == ARGUMENT_LACKS, lacks = row->rule == ARGUMENT_LACKS;
    uint32_t value = row->rule == ARGUMENT_IS_SELF ? (uint32_t)getpid() : row->value;
    put(program, BPF_JMP | BPF_JEQ | BPF_K, 0, masks ? 5 : 4, (uint32_t)row->number);
    load(program, offsetof(struct seccomp_data, args) + 8 * row->argument); /* both architectures are little-endian */
    if (masks)
        put(program, BPF_ALU | BPF_AND | BPF_K, 0, 0, value);
    put(program, BPF_JMP | BPF_JEQ | BPF_K, lacks ? 1 : 0, lacks ? 0 : 1, value);
    put(program, BPF_RET | BPF_K, 0, 0, action);
    load(program, offsetof(struct seccomp_data, nr));
}

bool seccomp_restrict(const struct call_row *rows, size_t count, int otherwise)
{
#if defined(__x86_64__) || defined(__aarch64__)
    struct program program = {.count = 0};
    uint32_t listed = otherwise != 0 ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPERM;
    uint32_t others = otherwise != 0 ? SECCOMP_RET_ERRNO | (uint32_t)otherwise : SECCOMP_RET_ALLOW;
    if (count * OF_A_ROW + AROUND > INSTRUCTIONS_MOST)
        return false;
    load(&program, offsetof(struct seccomp_data, arch));
    put(&program, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, (uint32_t)ARCHITECTURE);
    put(&program, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
    load(&program, offsetof(struct seccomp_data, nr));
#ifdef X32_CALLS
    put(&program, BPF_JMP | BPF_JGE | BPF_K, 0, 1, X32_CALLS);
    put(&program, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
#endif
    for (size_t at = 0; at < count; at++)
        put_row(&program, &rows[at], listed);
    put(&program, BPF_RET | BPF_K, 0, 0, others);
    struct sock_fprog whole = {program.count, program.at};
    /* Before Linux 5.16 a filter also slows down every load behind a store; what that guards here is the process's own. */
    const unsigned int flags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &whole) == 0;
#else
    (void)rows, (void)count, (void)otherwise;
    return false; /* no list for this architecture */
#endif
}
