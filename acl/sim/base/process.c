/* Processes: see process.h.
 *
 * State and start time are read from the stat file of the process's first thread. Without /proc, a process counts as
 * the same if its number is the same. */
#include "base/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, PATH_BYTES = 64, FIELD_STATE = 3, FIELD_THREADS = 20, FIELD_START = 22 };

typedef struct ProcessStat {
    char state; /* of the first thread: a letter */
    unsigned long threads; /* 1 for a zombie: its first thread, which ended last */
    uint64_t start; /* in ticks since the machine's start */
} ProcessStat;

/* False if the process does not exist, or there is no /proc. The file of the first thread has the same times as that
 * of the process; an emulator such as qemu makes up the latter for its own process. */
static bool stat_read(int32_t pid, ProcessStat *stat)
{
    char path[PATH_BYTES], text[STAT_BYTES];
    *stat = (ProcessStat){.state = 'R'};
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", (int)pid, (int)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    char *at = strrchr(text, ')'); /* the end of the program's name, which may itself contain spaces and brackets */
    for (int field = FIELD_STATE; at != NULL && field <= FIELD_START; field++) {
        at = strchr(at + 1, ' ');
        if (at != NULL && field == FIELD_STATE) {
            stat->state = at[1];
        } else if (at != NULL && field == FIELD_THREADS) {
            stat->threads = strtoul(at, NULL, 10);
        }
    }
    stat->start = at != NULL ? strtoull(at, NULL, 10) : 0;
    return at != NULL;
}

/* True if the process has ended, and nobody has waited for it. A process whose first thread alone has ended has the
 * same state, but other threads. */
static bool is_zombie(const ProcessStat *stat)
{
    return stat->state == 'X' || (stat->state == 'Z' && stat->threads <= 1);
}

Process process_self(void)
{
    static _Atomic int32_t known_pid;
    static _Atomic uint64_t known_start;
    Process self = {.pid = (int32_t)getpid()};
    if (atomic_load(&known_pid) == self.pid) { /* not so in a forked child, which reads its own start time */
        self.start = atomic_load(&known_start);
        return self;
    }
    ProcessStat stat;
    self.start = stat_read(self.pid, &stat) ? stat.start : 0;
    atomic_store(&known_start, self.start);
    atomic_store(&known_pid, self.pid);
    return self;
}

bool process_lives(Process process)
{
    ProcessStat stat;
    if (process.pid <= 0 || (kill(process.pid, 0) != 0 && errno == ESRCH)) {
        return false;
    }
    if (!stat_read(process.pid, &stat)) {
        return kill(process.pid, 0) == 0 || errno != ESRCH;
    }
    return !is_zombie(&stat) && (process.start == 0 || stat.start == process.start);
}

int process_file(int32_t pid, int descriptor)
{
    char path[PATH_BYTES];
    ProcessStat stat;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, descriptor);
    int file = open(path, O_RDWR | O_CLOEXEC);
    int error = errno;
    if (file >= 0 || !stat_read(pid, &stat) || stat.state != 'Z') {
        errno = error;
        return file;
    }
    /* A thread that has ended has no files. The other threads of the process have them still. */
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads != NULL && file < 0 && (entry = readdir(threads)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/task/%ld/fd/%d", (int)pid, strtol(entry->d_name, NULL, 10), descriptor);
        file = open(path, O_RDWR | O_CLOEXEC);
    }
    if (threads != NULL) {
        closedir(threads);
    }
    errno = error;
    return file;
}
