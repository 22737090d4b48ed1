/* Names and descriptions of result codes. */
#include "cuda_calls.h"

CUresult cuGetErrorName(CUresult error, const char **text)
{
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)error) {
#define NAME(name, number, words) \
    case number: \
        *text = #name; \
        return CUDA_SUCCESS;
        CUDA_RESULTS(NAME)
#undef NAME
    default:
        *text = (const char *)0;
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    if (!text)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)error) {
#define WORDS(name, number, words) \
    case number: \
        *text = words; \
        return CUDA_SUCCESS;
        CUDA_RESULTS(WORDS)
#undef WORDS
    default:
        *text = (const char *)0;
        return CUDA_ERROR_INVALID_VALUE;
    }
}
