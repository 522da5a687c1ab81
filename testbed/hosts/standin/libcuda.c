/* libcuda.so.1: STAND-IN of NVIDIA's driver library. A device is a node /dev/nvidiaN with its line in /etc/standin/gpus; its memory is this
 * process's. /etc/standin/cuda-802 makes cuInit say 802 (system not yet initialized), as machines do whose fabric manager does not run. */
#include "standin.h"
#include <stdlib.h>

typedef int CUresult;
typedef int CUdevice;
typedef void *CUcontext;
typedef unsigned long long CUdeviceptr;
typedef struct { char bytes[16]; } CUuuid;

static struct gpu gpus[MAX_GPUS];
static int count, ready, current_device = -1;
static __thread CUcontext current;

#define NEED_INIT if (!ready) return 3
#define NEED_DEVICE(d) do { NEED_INIT; if ((d) < 0 || (d) >= count) return 101; } while (0)

static int in_list(const char *list, int i) {
    char copy[512], *p, number[16];
    snprintf(copy, sizeof copy, "%s", list);
    snprintf(number, sizeof number, "%d", i);
    for (p = strtok(copy, ", "); p; p = strtok(NULL, ", "))
        if (!strcmp(p, number) || (!strncmp(p, "GPU-", 4) && !strncmp(p, gpus[i].uuid, strlen(p)))) return 1;
    return 0;
}

CUresult cuInit(unsigned flags) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int i, n = 0;
    if (flags) return 1;
    if (exists("/etc/standin/cuda-802")) return 802;
    count = standin_gpus(gpus);
    if (visible) {
        struct gpu kept[MAX_GPUS];
        for (i = 0; i < count; i++) if (in_list(visible, i)) kept[n++] = gpus[i];
        memcpy(gpus, kept, sizeof kept);
        count = n;
    }
    if (!count) return 100;
    ready = 1;
    return 0;
}
CUresult cuDriverGetVersion(int *v) { if (!v) return 1; *v = 13000; return 0; }
CUresult cuDeviceGetCount(int *n) { NEED_INIT; if (!n) return 1; *n = count; return 0; }
CUresult cuDeviceGet(CUdevice *d, int ordinal) { NEED_DEVICE(ordinal); if (!d) return 1; *d = ordinal; return 0; }
CUresult cuDeviceGetName(char *name, int len, CUdevice d) { NEED_DEVICE(d); snprintf(name, len, GPU_NAME); return 0; }
CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice d) { NEED_DEVICE(d); snprintf(id, len, "%s", gpus[d].address); return 0; }
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) { NEED_DEVICE(d); *bytes = (size_t)GPU_MIB << 20; return 0; }
CUresult cuDeviceGetAttribute(int *v, int attribute, CUdevice d) {
    NEED_DEVICE(d);
    *v = attribute == 75 ? 8 : 0; /* the compute capability is 8.0; nothing else is known */
    return 0;
}
CUresult cuDeviceGetUuid_v2(CUuuid *out, CUdevice d) {
    int n = 0, half = 0;
    const char *c;
    NEED_DEVICE(d);
    memset(out, 0, sizeof *out);
    for (c = gpus[d].uuid + 4; *c && n < 16; c++) { /* after "GPU-" */
        int v = *c >= '0' && *c <= '9' ? *c - '0' : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10 : -1;
        if (v < 0) continue;
        out->bytes[n] = (char)((out->bytes[n] << 4) | v);
        if (half) n++;
        half = !half;
    }
    return 0;
}
CUresult cuDeviceGetUuid(CUuuid *out, CUdevice d) { return cuDeviceGetUuid_v2(out, d); }
CUresult cuCtxCreate_v2(CUcontext *c, unsigned flags, CUdevice d) {
    (void)flags;
    NEED_DEVICE(d);
    if (!(current = *c = malloc(1))) return 2;
    current_device = d;
    return 0;
}
CUresult cuCtxDestroy_v2(CUcontext c) { NEED_INIT; if (!c) return 201; free(c); if (c == current) current = NULL; return 0; }
CUresult cuCtxGetDevice(CUdevice *d) { NEED_INIT; if (!current) return 201; *d = current_device; return 0; }
CUresult cuCtxSynchronize(void) { NEED_INIT; return current ? 0 : 201; }
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    NEED_INIT;
    if (!current) return 201;
    if (!n) return 1;
    void *m = malloc(n);
    if (!m) return 2;
    *p = (CUdeviceptr)(size_t)m;
    return 0;
}
CUresult cuMemFree_v2(CUdeviceptr p) { NEED_INIT; if (!current) return 201; free((void *)(size_t)p); return 0; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) { NEED_INIT; if (!current) return 201; memcpy((void *)(size_t)to, from, n); return 0; }
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) { NEED_INIT; if (!current) return 201; memcpy(to, (void *)(size_t)from, n); return 0; }
static const struct { int code; const char *name, *text; } errors[] = {
    {0, "CUDA_SUCCESS", "no error"}, {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"}, {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"}, {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}, {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"}};
static CUresult describe(int code, const char **out, int text) {
    size_t i;
    for (i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) { *out = text ? errors[i].text : errors[i].name; return 0; }
    *out = NULL;
    return 1;
}
CUresult cuGetErrorName(CUresult code, const char **out) { return describe(code, out, 0); }
CUresult cuGetErrorString(CUresult code, const char **out) { return describe(code, out, 1); }
