/* standin.h: what the STAND-INS of NVIDIA's programs know: which GPUs there are. A GPU is seen if its device node exists and
 * /etc/standin/gpus has its line `index uuid address`. No strtol or sscanf: with a new libc they would ask for symbols that old ones lack. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define GPU_NAME "Stand-in GPU"
#define GPU_MIB 40960
#define DRIVER_VERSION "580.95.05"
#define MAX_GPUS 16

struct gpu { int index; char uuid[64]; char address[32]; };

static int exists(const char *path) { struct stat s; return stat(path, &s) == 0; }

static int standin_gpus(struct gpu *out) {
    FILE *f = fopen("/etc/standin/gpus", "r");
    char line[256];
    int n = 0;
    if (!f) return 0;
    while (n < MAX_GPUS && fgets(line, sizeof line, f)) {
        char *index = strtok(line, " \n"), *uuid = strtok(NULL, " \n"), *address = strtok(NULL, " \n"), node[32], *c;
        if (!index || !uuid || !address) continue;
        snprintf(node, sizeof node, "/dev/nvidia%s", index);
        if (!exists(node)) continue;
        struct gpu *g = &out[n++];
        g->index = 0;
        for (c = index; *c >= '0' && *c <= '9'; c++) g->index = g->index * 10 + (*c - '0');
        snprintf(g->uuid, sizeof g->uuid, "%s", uuid);
        snprintf(g->address, sizeof g->address, "%s", address);
    }
    fclose(f);
    return n;
}
