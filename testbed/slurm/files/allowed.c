/* allowed.c: linked into the STAND-INS of NVIDIA's programs: a device that this process's cgroup forbids is not seen, as with the real
 * driver. (No driver is behind an allowed one: opening it fails with ENXIO.) */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int __real_stat(const char *path, struct stat *s);

int __wrap_stat(const char *path, struct stat *s) {
    int fd;
    if (!strncmp(path, "/dev/nvidia", 11)) {
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd >= 0) close(fd);
        else if (errno == EPERM || errno == EACCES) return -1;
    }
    return __real_stat(path, s);
}
