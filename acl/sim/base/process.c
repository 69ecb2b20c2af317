/* Processes: see process.h.
 *
 * State and start time are read from /proc/PID/stat. Without /proc, a process counts as the same
 * if its number is the same. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, FIELD_START = 22, FIELD_STATE = 3 };

/* Reads the process's state (a letter) and its start time; false if the file does not exist. */
static bool stat_read(int32_t pid, char *state, uint64_t *start)
{
    char path[32], text[STAT_BYTES];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
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
            *state = at[1];
        }
    }
    *start = at != NULL ? strtoull(at, NULL, 10) : 0;
    return at != NULL;
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
    char state;
    if (!stat_read(self.pid, &state, &self.start)) {
        self.start = 0;
    }
    atomic_store(&known_start, self.start);
    atomic_store(&known_pid, self.pid);
    return self;
}

bool process_lives(Process process)
{
    char state = 'R';
    uint64_t start = 0;
    if (process.pid <= 0 || (kill(process.pid, 0) != 0 && errno == ESRCH)) {
        return false;
    }
    if (!stat_read(process.pid, &state, &start)) {
        return kill(process.pid, 0) == 0 || errno != ESRCH;
    }
    bool ended = state == 'Z' || state == 'X';
    return !ended && (process.start == 0 || start == process.start);
}
