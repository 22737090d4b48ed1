/* Modules, functions and launches. An image is copied out of shared memory before anyone reads it. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls/image.h"
#include "calls/layout.h"
#include "calls/tensor_map.h"
#include "proxy/clock.h"
#include "proxy/serve.h"

CUresult serve_cuModuleLoadData(struct request *request);
CUresult serve_cuModuleUnload(struct request *request);
CUresult serve_cuModuleGetFunction(struct request *request);
CUresult serve_cuModuleGetGlobal_v2(struct request *request);
CUresult serve_cuLaunchKernel(struct request *request);
CUresult serve_cuTensorMapEncodeTiled(struct request *request);
CUresult serve_cuOccupancyMaxActiveClusters(struct request *request);

enum { LOG_MOST = 4096 }; /* bytes of the compiler's complaints that travel back */

struct module_facts {
    uint64_t charged_bytes; /* image, module, and what is known of its functions */
};

/* Copies the message's bulk bytes to private memory. */
static bool take_bulk(struct request *request, void *to, size_t bytes)
{
    struct wire *wire = request->tenant->wire;
    for (size_t done = 0; done < bytes;) {
        const void *at;
        size_t granted;
        if (wire->ops->bulk_peek(wire, bytes - done, &at, &granted) != WIRE_OK) {
            request->broken = true;
            return false;
        }
        memcpy((char *)to + done, at, granted);
        done += granted;
        request->bulk_left -= granted;
        if (wire->ops->bulk_release(wire, granted) != WIRE_OK)
            request->broken = true;
    }
    return true;
}

/* The image in private memory with a 0 behind it, or NULL. */
static char *take_image(struct request *request, size_t bytes)
{
    char *image = malloc(bytes + 1);
    if (image == NULL || !take_bulk(request, image, bytes)) {
        free(image);
        return NULL;
    }
    image[bytes] = 0;
    return image;
}

static bool tenant_waits(void *who)
{
    return tenant_alive(who);
}

/* What the module takes on a backend that does not say so: what is free before and after the load. Other programs on the
 * same device may falsify it, in both directions. */
static CUresult load_measured(struct tenant *tenant, CUmodule *module, const char *image, CUjit_option *options,
                              void **values, uint64_t *bytes)
{
    const struct backend_calls *calls = &tenant->backend->calls;
    size_t before = 0, after = 0, total;
    bool measured = calls->cuMemGetInfo_v2(&before, &total) == CUDA_SUCCESS;
    CUresult result = calls->cuModuleLoadDataEx != NULL ? calls->cuModuleLoadDataEx(module, image, 2, options, values)
                                                        : calls->cuModuleLoadData(module, image);
    measured = measured && calls->cuMemGetInfo_v2(&after, &total) == CUDA_SUCCESS;
    *bytes = measured && before > after ? before - after : 0;
    return result;
}

static CUresult load_within_quota(struct tenant *tenant, CUmodule *module, const char *image, CUjit_option *options,
                                  void **values, uint64_t *bytes)
{
    const struct backend *backend = tenant->backend;
    CUresult result;
    if (backend->load_bounded != NULL) {
        struct gputax_load_bounds bounds = {.bytes_most = tenant_left(tenant), .goes_on = tenant_waits, .who = tenant};
        result = backend->load_bounded(module, image, 2, options, values, &bounds);
        *bytes = bounds.bytes;
    } else {
        result = load_measured(tenant, module, image, options, values, bytes);
    }
    if (result != CUDA_SUCCESS || tenant_charge(tenant, *bytes))
        return result;
    backend->calls.cuModuleUnload(*module);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult load(struct request *request, const char *image, size_t bytes, uint64_t *id)
{
    struct tenant *tenant = request->tenant;
    struct module_facts *facts = malloc(sizeof *facts);
    if (facts == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUmodule module = NULL;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    char *log = (char *)request->out_variable;
    void *values[] = {log, (void *)(uintptr_t)LOG_MOST};
    uint64_t taken = 0;
    log[0] = 0;
    CUresult result = load_within_quota(tenant, &module, image, options, values, &taken);
    if (result != CUDA_SUCCESS) {
        free(facts);
        log[LOG_MOST - 1] = 0;
        request->out_variable_bytes = log[0] != 0 ? strlen(log) + 1 : 0;
        return result;
    }
    facts->charged_bytes = bytes + taken;
    *id = tenant_add(tenant, HANDLE_MODULE, module);
    handles_find(&tenant->handles, HANDLE_MODULE, *id)->extra = facts;
    return CUDA_SUCCESS;
}

/* A module counts with the size of its image and with what it takes: variables on the device, code in the host. */
CUresult serve_cuModuleLoadData(struct request *request)
{
    const struct cuModuleLoadData_in *in = request->in;
    struct cuModuleLoadData_out *out = request->out;
    struct tenant *tenant = request->tenant;
    const struct backend_calls *calls = &tenant->backend->calls;
    if (calls->cuModuleLoadData == NULL || calls->cuModuleUnload == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (in->image_bytes == 0 || in->image_bytes > IMAGE_MOST || request->bulk_left != in->image_bytes)
        return CUDA_ERROR_INVALID_IMAGE;
    if (!tenant_room(tenant, HANDLE_MODULE) || !tenant_charge(tenant, in->image_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t bytes = in->image_bytes;
    char *image = take_image(request, bytes);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (image != NULL) {
        size_t own = image_bytes(image, bytes); /* headers that point behind the image would lead the backend there */
        result = own == 0 || own > bytes ? CUDA_ERROR_INVALID_IMAGE : load(request, image, bytes, &out->module);
    }
    free(image);
    if (result != CUDA_SUCCESS)
        tenant_discharge(tenant, bytes);
    return result;
}

CUresult serve_cuModuleUnload(struct request *request)
{
    const struct cuModuleUnload_in *in = request->in;
    struct tenant *tenant = request->tenant;
    const struct handle *handle = handles_find(&tenant->handles, HANDLE_MODULE, in->module);
    if (tenant->backend->calls.cuModuleUnload == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = tenant->backend->calls.cuModuleUnload(handle->real);
    if (result == CUDA_SUCCESS) {
        tenant_discharge(tenant, ((const struct module_facts *)handle->extra)->charged_bytes);
        ranges_drop(&tenant->memory, 0, in->module);
        tenant_remove(tenant, HANDLE_MODULE, in->module);
    }
    return result;
}

void serve_end_modules(struct tenant *tenant, uint64_t context)
{
    for (uint32_t index = 0; index < tenant->handles.used; index++) {
        const struct handle *handle = &tenant->handles.slots[index];
        if (handle->kind == HANDLE_MODULE && handle->owner == context && handle->extra != NULL)
            tenant_discharge(tenant, ((const struct module_facts *)handle->extra)->charged_bytes);
    }
}

/* Asks the backend where each parameter lies; it refuses the index behind the last one. */
static CUresult ask_layout(const struct backend *backend, CUfunction function, struct parameter *parameters,
                           uint32_t *count)
{
    if (backend->calls.cuFuncGetParamInfo == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (*count = 0; *count <= PARAMETERS_MOST; ++*count) {
        size_t offset = 0, bytes = 0;
        if (backend->calls.cuFuncGetParamInfo(function, *count, &offset, &bytes) != CUDA_SUCCESS)
            return layout_bytes(parameters, *count) == UINT32_MAX ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
        if (*count == PARAMETERS_MOST || offset > PARAMETER_BYTES_MOST || bytes > PARAMETER_BYTES_MOST)
            break;
        parameters[*count] = (struct parameter){(uint32_t)offset, (uint32_t)bytes};
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static bool is_string(const struct request *request)
{
    return request->variable_bytes > 0 && request->variable[request->variable_bytes - 1] == 0;
}

CUresult serve_cuModuleGetFunction(struct request *request)
{
    const struct cuModuleGetFunction_in *in = request->in;
    struct cuModuleGetFunction_out *out = request->out;
    struct tenant *tenant = request->tenant;
    const struct handle *module = handles_find(&tenant->handles, HANDLE_MODULE, in->module);
    if (tenant->backend->calls.cuModuleGetFunction == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_string(request) || module == NULL)
        return is_string(request) ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    struct module_facts *module_facts = module->extra; /* the table of handles may move */
    CUmodule real_module = module->real;
    if (!tenant_room(tenant, HANDLE_FUNCTION))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUfunction real = NULL;
    CUresult result = tenant->backend->calls.cuModuleGetFunction(&real, real_module, (const char *)request->variable);
    struct parameter parameters[PARAMETERS_MOST];
    uint32_t count = 0;
    if (result == CUDA_SUCCESS)
        result = ask_layout(tenant->backend, real, parameters, &count);
    if (result != CUDA_SUCCESS)
        return result;
    size_t bytes = count * sizeof *parameters;
    if (!tenant_charge(tenant, sizeof(struct function_facts) + bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    module_facts->charged_bytes += sizeof(struct function_facts) + bytes; /* until the module goes */
    struct function_facts *facts = malloc(sizeof *facts + bytes);
    if (facts == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *facts = (struct function_facts){.count = count, .bytes = layout_bytes(parameters, count)};
    memcpy(facts->parameters, parameters, bytes);
    out->function = handles_add(&tenant->handles, HANDLE_FUNCTION, real, in->module);
    handles_find(&tenant->handles, HANDLE_FUNCTION, out->function)->extra = facts;
    out->parameter_count = count;
    memcpy(request->out_variable, parameters, bytes);
    request->out_variable_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult serve_cuModuleGetGlobal_v2(struct request *request)
{
    const struct cuModuleGetGlobal_v2_in *in = request->in;
    struct cuModuleGetGlobal_v2_out *out = request->out;
    struct tenant *tenant = request->tenant;
    const struct handle *module = handles_find(&tenant->handles, HANDLE_MODULE, in->module);
    if (tenant->backend->calls.cuModuleGetGlobal_v2 == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_string(request) || module == NULL)
        return is_string(request) ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    if (!ranges_room(&tenant->memory))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr pointer = 0;
    size_t bytes = 0;
    CUresult result =
        tenant->backend->calls.cuModuleGetGlobal_v2(&pointer, &bytes, module->real, (const char *)request->variable);
    if (result != CUDA_SUCCESS)
        return result;
    /* It ends with the module, and the module with its own context, whichever one is current now. */
    ranges_add(&tenant->memory, (struct range){pointer, bytes, module->owner, in->module});
    out->pointer = pointer;
    out->bytes = bytes;
    return CUDA_SUCCESS;
}

bool tenant_throttle(struct tenant *tenant)
{
    uint64_t begun = now_ns();
    uint64_t wait = account_launch(tenant->account, tenant->settings.limits.launches_per_s, begun);
    const uint64_t step = 100000000;
    bool goes_on = true;
    for (uint64_t until = begun + wait, now = begun; goes_on && now < until; now = now_ns()) {
        uint64_t part = until - now < step ? until - now : step;
        struct timespec pause = {.tv_sec = 0, .tv_nsec = (long)part};
        struct pollfd death = {.fd = tenant->process, .events = POLLIN}; /* poll passes over a negative one */
        goes_on = ppoll(&death, 1, &pause, NULL) == 0 && tenant_alive(tenant);
    }
    if (wait != 0)
        atomic_fetch_add_explicit(&tenant->record->throttled_ns, now_ns() - begun, memory_order_relaxed);
    return goes_on;
}

CUresult serve_launch(struct tenant *tenant, const struct serve_launch *launch)
{
    const struct backend_calls *calls = &tenant->backend->calls;
    const uint32_t *grid = launch->grid, *block = launch->block;
    if (launch->attribute_count == 0)
        return calls->cuLaunchKernel(launch->function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                     launch->shared_bytes, launch->stream, launch->parameters, NULL);
    CUlaunchAttribute attributes[LAUNCH_ATTRIBUTES_MOST];
    if (calls->cuLaunchKernelEx == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    memset(attributes, 0, sizeof attributes);
    for (uint32_t at = 0; at < launch->attribute_count; at++) {
        struct launch_attribute one;
        memcpy(&one, launch->attributes + at * sizeof one, sizeof one);
        uint32_t words = launch_attribute_words(one.id);
        if (words == 0)
            return CUDA_ERROR_INVALID_VALUE; /* one that would be an address or a handle of the backend */
        attributes[at].id = (CUlaunchAttributeID)one.id;
        memcpy(attributes[at].value.bytes, one.value, words * sizeof *one.value);
    }
    const CUlaunchConfig config = {.gridDimX = grid[0],
                                   .gridDimY = grid[1],
                                   .gridDimZ = grid[2],
                                   .blockDimX = block[0],
                                   .blockDimY = block[1],
                                   .blockDimZ = block[2],
                                   .sharedMemBytes = launch->shared_bytes,
                                   .hStream = launch->stream,
                                   .attrs = attributes,
                                   .numAttrs = launch->attribute_count};
    return calls->cuLaunchKernelEx(&config, launch->function, launch->parameters, NULL);
}

CUresult serve_cuLaunchKernel(struct request *request)
{
    const struct cuLaunchKernel_in *in = request->in;
    struct tenant *tenant = request->tenant;
    void *stream;
    struct handle *handle = handles_find(&tenant->handles, HANDLE_FUNCTION, in->function);
    if (tenant->backend->calls.cuLaunchKernel == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (handle == NULL || !tenant_find(tenant, HANDLE_STREAM, in->stream, &stream))
        return CUDA_ERROR_INVALID_HANDLE;
    const struct function_facts *facts = handle->extra;
    bool bulk = facts->bytes > PARAMETER_INLINE_MOST;
    size_t inlined = bulk ? 0 : facts->bytes, attribute_bytes = in->attribute_count * sizeof(struct launch_attribute);
    if (in->attribute_count > LAUNCH_ATTRIBUTES_MOST || in->parameter_bytes != facts->bytes ||
        request->variable_bytes != attribute_bytes + inlined || (bulk && request->bulk_left != facts->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    _Alignas(16) uint8_t packed[PARAMETER_BYTES_MOST];
    void *parameters[PARAMETERS_MOST];
    if (!bulk)
        memcpy(packed, request->variable + attribute_bytes, facts->bytes);
    else if (!take_bulk(request, packed, facts->bytes))
        return CUDA_ERROR_LAUNCH_FAILED;
    for (uint32_t at = 0; at < facts->count; at++)
        parameters[at] = packed + facts->parameters[at].offset;
    if (!tenant_throttle(tenant)) {
        request->broken = true;
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    const uint32_t grid[] = {in->grid_x, in->grid_y, in->grid_z}, block[] = {in->block_x, in->block_y, in->block_z};
    const struct serve_launch launch = {.function = handle->real,
                                        .grid = grid,
                                        .block = block,
                                        .shared_bytes = in->shared_bytes,
                                        .stream = stream,
                                        .parameters = parameters,
                                        .attributes = request->variable,
                                        .attribute_count = in->attribute_count};
    return serve_launch(tenant, &launch);
}

/* Of an address that is not the tenant's the descriptor is of no use: the tenant's context is the wall. */
CUresult serve_cuTensorMapEncodeTiled(struct request *request)
{
    const struct cuTensorMapEncodeTiled_in *in = request->in;
    const struct backend_calls *calls = &request->tenant->backend->calls;
    struct tensor_layout layout;
    CUtensorMap map;
    if (calls->cuTensorMapEncodeTiled == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (request->variable_bytes != sizeof layout || in->layout_bytes != sizeof layout || in->map_bytes != sizeof map)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&layout, request->variable, sizeof layout);
    if (layout.rank == 0 || layout.rank > TENSOR_RANK_MOST)
        return CUDA_ERROR_INVALID_VALUE;
    memset(&map, 0, sizeof map);
    CUresult result = calls->cuTensorMapEncodeTiled(
        &map, layout.type, layout.rank, (void *)(uintptr_t)layout.address, layout.dimensions, layout.strides,
        layout.box, layout.element_strides, layout.interleave, layout.swizzle, layout.promotion, layout.fill);
    if (result == CUDA_SUCCESS) {
        memcpy(request->out_variable, &map, sizeof map);
        request->out_variable_bytes = sizeof map;
    }
    return result;
}

CUresult serve_cuOccupancyMaxActiveClusters(struct request *request)
{
    const struct cuOccupancyMaxActiveClusters_in *in = request->in;
    struct cuOccupancyMaxActiveClusters_out *out = request->out;
    struct tenant *tenant = request->tenant;
    const uint32_t sides[3] = {in->cluster_x, in->cluster_y, in->cluster_z};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    CUfunction function;
    int clusters = 0;
    if (tenant->backend->calls.cuOccupancyMaxActiveClusters == NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!tenant_find(tenant, HANDLE_FUNCTION, in->function, (void **)&function))
        return CUDA_ERROR_INVALID_HANDLE;
    memcpy(attribute.value.bytes, sides, sizeof sides);
    CUlaunchConfig config = {.gridDimX = in->grid_x,
                             .gridDimY = in->grid_y,
                             .gridDimZ = in->grid_z,
                             .blockDimX = in->block_x,
                             .blockDimY = in->block_y,
                             .blockDimZ = in->block_z,
                             .sharedMemBytes = in->shared_bytes,
                             .attrs = &attribute,
                             .numAttrs = 1};
    CUresult result = tenant->backend->calls.cuOccupancyMaxActiveClusters(&clusters, function, &config);
    out->clusters = clusters;
    return result;
}
