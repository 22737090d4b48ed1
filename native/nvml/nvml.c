/* NVML for a tenant: its one device, its memory within the quota and its own process, and nothing of other tenants. All of
 * it is asked from libvgpu (the libcuda.so.1 of this process), so a program and its monitoring see the same device. What only
 * the node's driver knows (clocks, temperature, power) is "not supported", and so is utilisation on a GPU. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "include/cuda_abi.h"
#include "nvml/nvml_abi.h"
#include "nvml/state.h"
#include "nvml/utilisation.h"

enum { NAME_BYTES = 96, UUID_BYTES = 48, PCI_BUS_ID = 33, PCI_DEVICE_ID = 34, PCI_DOMAIN_ID = 50, NO_INSTANCE = -1 };

struct nvmlDevice_st {
    char name[NAME_BYTES];
    char uuid[UUID_BYTES];
    nvmlPciInfo_t pci;
    int driver_version;
    int major, minor;
};

/* What is asked of libvgpu. */
static struct {
    CUresult (*cuInit)(unsigned int flags);
    CUresult (*cuDriverGetVersion)(int *version);
    CUresult (*cuDeviceGetName)(char *name, int capacity, CUdevice device);
    CUresult (*cuDeviceGetUuid_v2)(CUuuid *uuid, CUdevice device);
    CUresult (*cuDeviceGetAttribute)(int *value, CUdevice_attribute attribute, CUdevice device);
    CUresult (*gputaxMemory)(size_t *used, size_t *total);
    busy_question *gputaxUtilisation;
} driver;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int users;
static struct nvmlDevice_st only;

static nvmlReturn_t result_of(CUresult result)
{
    switch ((int)result) {
    case CUDA_SUCCESS:
        return NVML_SUCCESS;
    case CUDA_ERROR_NO_DEVICE:
        return NVML_ERROR_DRIVER_NOT_LOADED;
    case CUDA_ERROR_NOT_SUPPORTED:
        return NVML_ERROR_NOT_SUPPORTED;
    case CUDA_ERROR_SYSTEM_NOT_READY: /* the proxy is gone */
        return NVML_ERROR_GPU_IS_LOST;
    default:
        return NVML_ERROR_UNKNOWN;
    }
}

/* False for a libcuda.so.1 that is not libvgpu: the numbers of another driver's device are not ours to give. */
static bool find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return false;
#define FIND(name) *(void **)&driver.name = dlsym(library, #name)
    FIND(cuInit);
    FIND(cuDriverGetVersion);
    FIND(cuDeviceGetName);
    FIND(cuDeviceGetUuid_v2);
    FIND(cuDeviceGetAttribute);
    FIND(gputaxMemory);
    FIND(gputaxUtilisation);
#undef FIND
    return driver.gputaxMemory != NULL && driver.gputaxUtilisation != NULL && driver.cuInit != NULL;
}

static CUresult attribute(int number, int *value)
{
    return driver.cuDeviceGetAttribute(value, (CUdevice_attribute)number, 0);
}

static CUresult read_device(struct nvmlDevice_st *device)
{
    CUuuid uuid;
    int bus = 0, slot = 0, domain = 0;
    CUresult result = driver.cuInit(0);
    if (result == CUDA_SUCCESS)
        result = driver.cuDriverGetVersion(&device->driver_version);
    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceGetName(device->name, sizeof device->name, 0);
    if (result == CUDA_SUCCESS)
        result = driver.cuDeviceGetUuid_v2(&uuid, 0);
    if (result == CUDA_SUCCESS)
        result = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &device->major);
    if (result == CUDA_SUCCESS)
        result = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &device->minor);
    if (result == CUDA_SUCCESS)
        result = attribute(PCI_BUS_ID, &bus);
    if (result == CUDA_SUCCESS)
        result = attribute(PCI_DEVICE_ID, &slot);
    if (result == CUDA_SUCCESS)
        result = attribute(PCI_DOMAIN_ID, &domain);
    if (result != CUDA_SUCCESS)
        return result;
    device->name[sizeof device->name - 1] = 0;
    char *to = device->uuid;
    to += snprintf(to, UUID_BYTES, "GPU-");
    for (int at = 0; at < 16; at++)
        to += snprintf(to, 4, "%s%02x", at == 4 || at == 6 || at == 8 || at == 10 ? "-" : "",
                       (unsigned int)(uint8_t)uuid.bytes[at]);
    device->pci =
        (nvmlPciInfo_t){.domain = (unsigned int)domain, .bus = (unsigned int)bus, .device = (unsigned int)slot};
    snprintf(device->pci.busIdLegacy, sizeof device->pci.busIdLegacy, "%04X:%02X:%02X.0", domain & 0xffff, bus & 0xff,
             slot & 0xff);
    snprintf(device->pci.busId, sizeof device->pci.busId, "%08X:%02X:%02X.0", (unsigned int)domain, bus & 0xff,
             slot & 0xff);
    return CUDA_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t result = NVML_SUCCESS;
    (void)flags;
    pthread_mutex_lock(&lock);
    if (users == 0)
        result = find_driver() ? result_of(read_device(&only)) : NVML_ERROR_DRIVER_NOT_LOADED;
    if (users == 0 && result == NVML_SUCCESS)
        utilisation_open(driver.gputaxUtilisation);
    users += result == NVML_SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT nvmlReturn_t nvmlInit_v2(void);
EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlInit(void);
EXPORT nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void);
EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    users -= users > 0;
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result);
EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch ((int)result) {
#define TEXT(name, number, text) \
    case number: \
        return text;
        NVML_RESULTS(TEXT)
#undef TEXT
    default:
        return "Unknown Error";
    }
}

bool nvml_initialised(void)
{
    pthread_mutex_lock(&lock);
    bool any = users > 0;
    pthread_mutex_unlock(&lock);
    return any;
}

/* Whether a question may be answered: `out` is where the answer goes. */
static nvmlReturn_t ready(const void *out)
{
    if (!nvml_initialised())
        return NVML_ERROR_UNINITIALIZED;
    return out != NULL ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t ready_for(nvmlDevice_t device, const void *out)
{
    nvmlReturn_t result = ready(out);
    return result == NVML_SUCCESS && device != &only ? NVML_ERROR_INVALID_ARGUMENT : result;
}

static nvmlReturn_t give_text(char *to, unsigned int length, const char *text)
{
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(to, text, strlen(text) + 1);
    return NVML_SUCCESS;
}

/* --- the system --- */

/* The driver behind the proxy has a version that only its own NVML knows; CUDA's is what both name alike. */
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length);
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    char text[32];
    nvmlReturn_t result = ready(version);
    snprintf(text, sizeof text, "gputax CUDA %d.%d", only.driver_version / 1000, only.driver_version % 1000 / 10);
    return result == NVML_SUCCESS ? give_text(version, length, text) : result;
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length);
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    nvmlReturn_t result = ready(version);
    return result == NVML_SUCCESS ? give_text(version, length, "gputax") : result;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    nvmlReturn_t result = ready(version);
    if (result == NVML_SUCCESS)
        *version = only.driver_version;
    return result;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* --- the device --- */

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    nvmlReturn_t result = ready(count);
    if (result == NVML_SUCCESS)
        *count = 1;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count);
EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    nvmlReturn_t result = ready(device);
    if (result == NVML_SUCCESS && index != 0)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *device = &only;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t result = uuid != NULL ? ready(device) : NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS && strcasecmp(uuid, only.uuid) != 0)
        result = NVML_ERROR_NOT_FOUND;
    if (result == NVML_SUCCESS)
        *device = &only;
    return result;
}

/* DOMAIN:BUS:DEVICE.FUNCTION, hexadecimal, with a domain of any length or none. */
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device)
{
    unsigned int domain = 0, bus, slot;
    nvmlReturn_t result = text != NULL ? ready(device) : NVML_ERROR_INVALID_ARGUMENT;
    if (result != NVML_SUCCESS)
        return result;
    if (sscanf(text, "%8x:%2x:%2x", &domain, &bus, &slot) != 3 && sscanf(text, "%2x:%2x", &bus, &slot) != 2)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (domain != only.pci.domain || bus != only.pci.bus || slot != only.pci.device)
        return NVML_ERROR_NOT_FOUND;
    *device = &only;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(text, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index);
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    nvmlReturn_t result = ready_for(device, index);
    if (result == NVML_SUCCESS)
        *index = 0;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length);
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    nvmlReturn_t result = ready_for(device, name);
    return result == NVML_SUCCESS ? give_text(name, length, only.name) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length);
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    nvmlReturn_t result = ready_for(device, uuid);
    return result == NVML_SUCCESS ? give_text(uuid, length, only.uuid) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t result = ready_for(device, pci);
    if (result == NVML_SUCCESS)
        *pci = only.pci;
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor);
EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    nvmlReturn_t result = ready_for(device, major);
    if (result == NVML_SUCCESS && minor == NULL)
        result = NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS) {
        *major = only.major;
        *minor = only.minor;
    }
    return result;
}

/* --- memory and processes: those of this process, which is what the proxy counts as a tenant --- */

static nvmlReturn_t ask_memory(nvmlMemory_t *memory)
{
    size_t used = 0, total = 0;
    nvmlReturn_t result = result_of(driver.gputaxMemory(&used, &total));
    if (result == NVML_SUCCESS)
        *memory = (nvmlMemory_t){.total = total, .used = used, .free = total - used};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = ready_for(device, memory);
    return result == NVML_SUCCESS ? ask_memory(memory) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t found;
    nvmlReturn_t result = ready_for(device, memory);
    if (result == NVML_SUCCESS && memory->version != NVML_MEMORY_V2)
        result = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result == NVML_SUCCESS)
        result = ask_memory(&found);
    if (result == NVML_SUCCESS) {
        memory->total = found.total;
        memory->reserved = 0;
        memory->free = found.free;
        memory->used = found.used;
    }
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates);
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    nvmlReturn_t result = ready_for(device, rates);
    if (result != NVML_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    result = result_of(utilisation_rates(driver.gputaxUtilisation, rates));
    pthread_mutex_unlock(&lock);
    return result;
}

/* Whether there is room for this process, which alone is told of; `memory` gets what it uses. */
static nvmlReturn_t own_process(nvmlDevice_t device, unsigned int *count, const void *to, unsigned long long *used)
{
    nvmlMemory_t memory = {0};
    nvmlReturn_t result = ready_for(device, count);
    if (result == NVML_SUCCESS)
        result = ask_memory(&memory);
    if (result != NVML_SUCCESS)
        return result;
    unsigned int room = *count;
    *count = 1;
    *used = memory.used;
    return room < 1 || to == NULL ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                         nvmlProcessInfo_v1_t *to);
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                         nvmlProcessInfo_v1_t *to)
{
    unsigned long long used;
    nvmlReturn_t result = own_process(device, count, to, &used);
    if (result == NVML_SUCCESS)
        to[0] = (nvmlProcessInfo_v1_t){(unsigned int)getpid(), used};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_v2_t *to);
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_v2_t *to)
{
    unsigned long long used;
    nvmlReturn_t result = own_process(device, count, to, &used);
    if (result == NVML_SUCCESS)
        to[0] =
            (nvmlProcessInfo_v2_t){(unsigned int)getpid(), used, (unsigned int)NO_INSTANCE, (unsigned int)NO_INSTANCE};
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_v2_t *to);
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                            nvmlProcessInfo_v2_t *to)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, to);
}

static nvmlReturn_t no_process(nvmlDevice_t device, unsigned int *count)
{
    nvmlReturn_t result = ready_for(device, count);
    if (result == NVML_SUCCESS)
        *count = 0;
    return result;
}

#define NO_PROCESSES(name) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *to); \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *to) \
    { \
        (void)to; \
        return no_process(device, count); \
    }
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* By this a measuring program knows ours: what it asks would travel beside what it measures. */
EXPORT int gputaxNvml(void);
EXPORT int gputaxNvml(void)
{
    return 1;
}
