/* libamdhip64.so: STAND-IN of AMD's HIP library. A device is a node /dev/dri/renderD<128+i>; its memory is this process's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int nodes[64], count;
static __thread int current;

int hipInit(unsigned flags) {
    struct stat s;
    char path[64];
    int i;
    if (flags) return 1;
    count = 0;
    if (stat("/dev/kfd", &s)) return 100;
    for (i = 0; i < 64; i++) {
        snprintf(path, sizeof path, "/dev/dri/renderD%d", 128 + i);
        if (!stat(path, &s)) nodes[count++] = i;
    }
    return count ? 0 : 100;
}
static int start(void) { return count ? 0 : hipInit(0); }
int hipGetDeviceCount(int *n) { int rc = start(); *n = count; return rc; }
int hipSetDevice(int d) { int rc = start(); if (rc) return rc; if (d < 0 || d >= count) return 101; current = d; return 0; }
int hipGetDevice(int *d) { int rc = start(); if (rc) return rc; *d = current; return 0; }
int hipDeviceGet(int *d, int ordinal) { int rc = start(); if (rc) return rc; if (ordinal < 0 || ordinal >= count) return 101; *d = ordinal; return 0; }
int hipDeviceGetName(char *name, int len, int d) { int rc = start(); if (rc) return rc; if (d < 0 || d >= count) return 101; snprintf(name, len, "Stand-in GPU"); return 0; }
/* The testbed puts its n-th GPU at bus 0x10 * (n + 1). */
int hipDeviceGetPCIBusId(char *id, int len, int d) {
    int rc = start();
    if (rc) return rc;
    if (d < 0 || d >= count) return 101;
    snprintf(id, len, "0000:%02x:00.0", 16 + 16 * nodes[d]);
    return 0;
}
int hipRuntimeGetVersion(int *v) { *v = 70000000; return 0; }
int hipDriverGetVersion(int *v) { *v = 70000000; return 0; }
int hipMalloc(void **p, size_t n) { int rc = start(); if (rc) return rc; *p = malloc(n ? n : 1); return *p ? 0 : 2; }
int hipFree(void *p) { free(p); return 0; }
int hipMemcpy(void *to, const void *from, size_t n, int kind) { int rc = start(); (void)kind; if (rc) return rc; memcpy(to, from, n); return 0; }
int hipDeviceSynchronize(void) { return start(); }
const char *hipGetErrorName(int code) { return code == 0 ? "hipSuccess" : code == 2 ? "hipErrorOutOfMemory" : code == 100 ? "hipErrorNoDevice" : code == 101 ? "hipErrorInvalidDevice" : "hipErrorInvalidValue"; }
const char *hipGetErrorString(int code) { return code == 100 ? "no ROCm-capable device is detected" : hipGetErrorName(code); }
