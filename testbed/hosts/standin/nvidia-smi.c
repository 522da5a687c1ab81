/* nvidia-smi: STAND-IN of NVIDIA's program: -L, --query-gpu with --format=csv, -q -x, and a table. Statically linked, so that it runs in any image. */
#include "standin.h"
#include <stdlib.h>

static struct gpu gpus[MAX_GPUS];
static int count;

static int wanted(const char *id, int i) {
    char number[16];
    if (!id) return 1;
    snprintf(number, sizeof number, "%d", i);
    return !strcmp(id, number) || !strcmp(id, gpus[i].uuid) || strstr(gpus[i].address, id) != NULL;
}

/* As the real one writes it: eight digits of domain, capital letters. */
static void bus_id(const struct gpu *g, char *out, size_t size) {
    char *c;
    snprintf(out, size, "0000%s", g->address);
    for (c = out; *c; c++) if (*c >= 'a' && *c <= 'f') *c -= 32;
}

static int field(const char *name, int i, int units) {
    char bus[48];
    bus_id(&gpus[i], bus, sizeof bus);
    if (!strcmp(name, "index")) printf("%d", i);
    else if (!strcmp(name, "pci.bus_id") || !strcmp(name, "gpu_bus_id")) printf("%s", bus);
    else if (!strcmp(name, "uuid") || !strcmp(name, "gpu_uuid")) printf("%s", gpus[i].uuid);
    else if (!strcmp(name, "name") || !strcmp(name, "gpu_name")) printf(GPU_NAME);
    else if (!strcmp(name, "memory.total")) printf("%d%s", GPU_MIB, units ? " MiB" : "");
    else if (!strcmp(name, "memory.used")) printf("0%s", units ? " MiB" : "");
    else if (!strcmp(name, "memory.free")) printf("%d%s", GPU_MIB, units ? " MiB" : "");
    else if (!strcmp(name, "utilization.gpu")) printf("0%s", units ? " %" : "");
    else if (!strcmp(name, "driver_version")) printf(DRIVER_VERSION);
    else if (!strcmp(name, "compute_cap")) printf("8.0");
    else if (!strcmp(name, "mig.mode.current")) printf("Disabled");
    else if (!strcmp(name, "count")) printf("%d", count);
    else return 0;
    return 1;
}

static int query(char *fields, const char *format, const char *id) {
    int units = strstr(format, "nounits") == NULL, header = strstr(format, "noheader") == NULL, i, n = 0, k, first = 1;
    char *names[64], *part;
    for (part = strtok(fields, ", "); part && n < 64; part = strtok(NULL, ", ")) names[n++] = part;
    for (k = 0; k < n; k++) {
        FILE *saved = stdout;
        stdout = fopen("/dev/null", "w");
        int known = field(names[k], 0, units);
        fclose(stdout);
        stdout = saved;
        if (!known) { printf("Field \"%s\" is not a valid field to query.\n\n", names[k]); return 2; }
        if (header) printf("%s%s", first ? "" : ", ", names[k]);
        first = 0;
    }
    if (header) printf("\n");
    for (i = 0; i < count; i++) {
        if (!wanted(id, i)) continue;
        for (k = 0; k < n; k++) { if (k) printf(", "); field(names[k], i, units); }
        printf("\n");
    }
    return 0;
}

static void xml(void) {
    int i;
    printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n\t<driver_version>" DRIVER_VERSION
           "</driver_version>\n\t<cuda_version>13.0</cuda_version>\n\t<attached_gpus>%d</attached_gpus>\n", count);
    for (i = 0; i < count; i++) {
        char bus[48];
        bus_id(&gpus[i], bus, sizeof bus);
        printf("\t<gpu id=\"%s\">\n\t\t<product_name>" GPU_NAME "</product_name>\n\t\t<mig_mode>\n\t\t\t<current_mig>Disabled</current_mig>\n\t\t</mig_mode>\n\t\t<uuid>%s</uuid>\n"
               "\t\t<fabric>\n\t\t\t<state>N/A</state>\n\t\t\t<status>N/A</status>\n\t\t</fabric>\n"
               "\t\t<fb_memory_usage>\n\t\t\t<total>%d MiB</total>\n\t\t\t<used>0 MiB</used>\n\t\t\t<free>%d MiB</free>\n\t\t</fb_memory_usage>\n\t</gpu>\n", bus, gpus[i].uuid, GPU_MIB, GPU_MIB);
    }
    printf("</nvidia_smi_log>\n");
}

int main(int argc, char **argv) {
    const char *format = "csv", *id = NULL;
    char *fields = NULL;
    int list = 0, want_xml = 0, full = 0, i;
    for (i = 1; i < argc; i++) {
        char *a = argv[i];
        if (!strcmp(a, "-L") || !strcmp(a, "--list-gpus")) list = 1;
        else if (!strncmp(a, "--query-gpu=", 12)) fields = a + 12;
        else if (!strncmp(a, "--format=", 9)) format = a + 9;
        else if (!strcmp(a, "-q") || !strcmp(a, "--query")) full = 1;
        else if (!strcmp(a, "-x") || !strcmp(a, "--xml-format")) want_xml = 1;
        else if (!strncmp(a, "--id=", 5)) id = a + 5;
        else if (!strcmp(a, "-i") && i + 1 < argc) id = argv[++i];
        else if (!strcmp(a, "-pm") && i + 1 < argc) i++;
        else { printf("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"); return 2; }
    }
    if (!exists("/dev/nvidiactl")) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n");
        return 9;
    }
    count = standin_gpus(gpus);
    if (!count) { printf("No devices were found\n"); return 6; }
    if (list) {
        for (i = 0; i < count; i++) if (wanted(id, i)) printf("GPU %d: " GPU_NAME " (UUID: %s)\n", i, gpus[i].uuid);
        return 0;
    }
    if (fields) return query(fields, format, id);
    if (want_xml) { xml(); return 0; }
    if (full) { for (i = 0; i < count; i++) printf("GPU %s\n    Product Name : " GPU_NAME "\n    GPU UUID : %s\n", gpus[i].address, gpus[i].uuid); return 0; }
    printf("+-----------------------------------------------------------------------------------------+\n"
           "| NVIDIA-SMI " DRIVER_VERSION "              Driver Version: " DRIVER_VERSION "      CUDA Version: 13.0     |\n"
           "|-----------------------------------------+------------------------+----------------------+\n");
    for (i = 0; i < count; i++) {
        char bus[48];
        bus_id(&gpus[i], bus, sizeof bus);
        printf("| %3d  %-18s            On  |   %s Off |                    0 |\n", i, GPU_NAME, bus);
    }
    printf("+-----------------------------------------+------------------------+----------------------+\n");
    return 0;
}
