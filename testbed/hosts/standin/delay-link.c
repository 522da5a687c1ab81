/* delay-link: two ends of a network link, one here and one in a network namespace; what leaves the namespace is held for some milliseconds.
 * STAND-IN of `tc netem` for kernels without it. usage: delay-link NAME-HERE NAMESPACE-FILE NAME-THERE MILLISECONDS */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

struct frame { struct frame *next; long long due; ssize_t size; char data[]; };

static int tap(const char *name) {
    struct ifreq request;
    int fd = open("/dev/net/tun", O_RDWR);
    memset(&request, 0, sizeof request);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    snprintf(request.ifr_name, IFNAMSIZ, "%s", name);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0) { perror(name); exit(1); }
    return fd;
}

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

int main(int argc, char **argv) {
    struct frame *first = NULL, **last = &first;
    static char buffer[70000];
    if (argc != 5) return 2;
    int here = tap(argv[1]), space = open(argv[2], O_RDONLY);
    if (space < 0 || setns(space, CLONE_NEWNET) < 0) { perror(argv[2]); return 1; }
    int there = tap(argv[3]);
    long long delay = atoll(argv[4]) * 1000;
    struct pollfd fds[2] = {{here, POLLIN, 0}, {there, POLLIN, 0}};
    for (;;) {
        struct timespec wait = {0, 0}, *limit = NULL;
        if (first) {
            long long left = first->due - now();
            if (left < 0) left = 0;
            wait.tv_sec = left / 1000000;
            wait.tv_nsec = left % 1000000 * 1000;
            limit = &wait;
        }
        if (ppoll(fds, 2, limit, NULL) < 0) return 1;
        ssize_t n;
        if ((fds[0].revents & POLLIN) && (n = read(here, buffer, sizeof buffer)) > 0) (void)!write(there, buffer, n);
        if ((fds[1].revents & POLLIN) && (n = read(there, buffer, sizeof buffer)) > 0) {
            struct frame *f = malloc(sizeof *f + n);
            if (!f) return 1;
            f->next = NULL; f->due = now() + delay; f->size = n;
            memcpy(f->data, buffer, n);
            *last = f; last = &f->next;
        }
        while (first && first->due <= now()) {
            struct frame *f = first;
            (void)!write(here, f->data, f->size);
            if (!(first = f->next)) last = &first;
            free(f);
        }
    }
}
