/* memory_file.c: files without a disk, in memory, which several processes can map.

   No state: any thread. */
#include "base/refusal.h"

#include <sys/mman.h>
#include <unistd.h>

int file_in_memory(const char *name, size_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    bool sized = fd >= 0 && ftruncate(fd, (off_t)bytes) == 0;
    if (!sized) {
        refusal_note(fd < 0 ? "memfd_create" : "ftruncate", bytes);
    }
    if (fd >= 0 && !sized) {
        close(fd);
        fd = -1;
    }
    return fd;
}
