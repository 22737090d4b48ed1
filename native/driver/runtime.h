/* What a program on the CUDA runtime (cudart) needs beside the driver's public calls; all of it local to the program. */
#ifndef GPUTAX_DRIVER_RUNTIME_H
#define GPUTAX_DRIVER_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_calls.h"

/* Whether the operator asked for it: GPUTAX_CUDA_RUNTIME=1. */
bool runtime_asked_for(void);

/* --- self_test.c --- */

/* The three addresses that go into the answer. */
struct self_test_places {
    const void *runtime_table, *self_test_table, *self_test;
};
CUresult self_test_answer(uint32_t version, uint64_t seconds, const struct self_test_places *places,
                          uint64_t answer[2]);
unsigned int self_tests_answered(void);

/* --- context_storage.c: values that libraries keep with a context --- */

typedef void (*storage_destructor)(CUcontext context, void *key, void *value);
CUresult storage_put(CUcontext context, void *key, void *value, storage_destructor destructor);
CUresult storage_delete(CUcontext context, void *key);
CUresult storage_get(void **value, CUcontext context, void *key);
/* Before a context ends: calls the destructors, which may call any function. Called without any lock. */
void storage_end(CUcontext context);

/* --- what each library brings: device/primary.c, vgpu/contexts.c --- */

/* The primary context's handle, which does not make it active: nobody retains it by this. */
CUresult primary_handle(CUcontext *context, CUdevice device);

#endif
