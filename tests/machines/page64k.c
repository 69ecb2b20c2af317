/* Imitates a kernel with pages of 64 KiB, for a program that calls mmap and similar functions of the C library.
   It is loaded by LD_PRELOAD.  A call that such a kernel refuses fails with EINVAL.  Mappings have the length and the
   alignment that they have on such a kernel. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const size_t PAGE = 65536;

static size_t whole(size_t bytes)
{
    return (bytes + PAGE - 1) & ~(PAGE - 1);
}

static bool inside_page(uintptr_t address)
{
    if ((address & (PAGE - 1)) != 0) {
        errno = EINVAL;
        return true;
    }
    return false;
}

static void *map(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

/* If the kernel chooses the address: reserves a larger range, and unmaps the parts outside the aligned range. */
void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    bool fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
    if (inside_page((uintptr_t)offset) || (fixed && inside_page((uintptr_t)at))) {
        return MAP_FAILED;
    }
    if (fixed || bytes == 0) {
        return map(at, whole(bytes), protection, flags, file, offset);
    }
    size_t length = whole(bytes);
    char *reserved = map(NULL, length + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        return MAP_FAILED;
    }
    char *begin = (char *)whole((uintptr_t)reserved), *end = reserved + length + PAGE;
    void *made = map(begin, length, protection, flags | MAP_FIXED, file, offset);
    int error = errno;
    if (made == MAP_FAILED) {
        syscall(SYS_munmap, reserved, length + PAGE);
        errno = error;
        return MAP_FAILED;
    }
    if (begin > reserved) {
        syscall(SYS_munmap, reserved, (size_t)(begin - reserved));
    }
    if (end > begin + length) {
        syscall(SYS_munmap, begin + length, (size_t)(end - begin) - length);
    }
    errno = error;
    return made;
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    return mmap(at, bytes, protection, flags, file, offset);
}

int munmap(void *at, size_t bytes)
{
    return inside_page((uintptr_t)at) ? -1 : (int)syscall(SYS_munmap, at, whole(bytes));
}

int mprotect(void *at, size_t bytes, int protection)
{
    return inside_page((uintptr_t)at) ? -1 : (int)syscall(SYS_mprotect, at, whole(bytes), protection);
}

int madvise(void *at, size_t bytes, int advice)
{
    return inside_page((uintptr_t)at) ? -1 : (int)syscall(SYS_madvise, at, whole(bytes), advice);
}

int getpagesize(void)
{
    return (int)PAGE;
}

long sysconf(int name)
{
    static long (*next)(int);
    if (name == _SC_PAGESIZE) {
        return (long)PAGE;
    }
    if (next == NULL) {
        next = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    }
    return next(name);
}
