// While a file of this name is in the folder HUNG: opening a file with that name waits, "disk" is all below VOLUME and what brings bytes to
// a disk, and "resolver" is the look-up of a name, which LEANED is the address of.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void wait_for(const char *name) {
    const char *folder = getenv("HUNG");
    char path[4096];
    if (!folder || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return;
    while (access(path, F_OK) == 0) usleep(10000);
}
int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    const char *volume = getenv("VOLUME"), *slash = strrchr(path, '/');
    if (volume && strncmp(path, volume, strlen(volume)) == 0) wait_for("disk");
    else if (slash && slash[1]) wait_for(slash + 1);
    return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
int fdatasync(int fd) { wait_for("disk"); return syscall(SYS_fdatasync, fd); }
int fsync(int fd) { wait_for("disk"); return syscall(SYS_fsync, fd); }
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    const char *leaned = getenv("LEANED");
    if (!leaned || !node || strcmp(node, "leaned.test") != 0) return real(node, service, hints, found);
    wait_for("resolver");
    return real(leaned, service, hints, found);
}
