/* counters.c: counts the calls of each function, and the statuses that it returned.

   ACL_SIM_COUNTERS=FILE ('-': standard error): at the end of the process, a line of JSON with the number of
   calls of each function is appended to FILE.  ACL_SIM_COVERAGE=FILE: as ACL_SIM_COUNTERS, but the calls of each
   function are counted by status.  Each child process appends its own line; if FILE contains "%p", each process
   has its own file.

   Thread rule: any thread.  All counts are atomics, so two counts that are read one after the other may be from
   different moments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/control_api.h"
#include "generated/exports.h"

const char *acl_sim_function(size_t index)
{
    return index < FN_COUNT ? function_names[index] : NULL;
}

uint64_t acl_sim_calls(size_t index)
{
    return index < FN_COUNT ? atomic_load_explicit(&gate_calls[index], memory_order_relaxed) : 0;
}

void acl_sim_calls_clear(void)
{
    for (size_t i = 0; i < FN_COUNT; i++) {
        atomic_store_explicit(&gate_calls[i], 0, memory_order_relaxed);
    }
}

/* ---- coverage -------------------------------------------------------------------------------- */

/* The calls by function and status: a hash table with open addressing. A key has the function's number plus one in its
   upper 32 bits and the status in its lower 32 bits; the key 0 marks a free slot. */
enum { SEEN_SLOTS = 8192, SEEN_MOST = SEEN_SLOTS / 2 };
static struct {
    _Atomic uint64_t key;
    atomic_ullong calls;
} seen[SEEN_SLOTS];
static atomic_uint seen_count;
static atomic_ullong seen_lost; /* calls that were not counted by status, because the table was full */

void coverage_count(unsigned function, aclError status)
{
    uint64_t key = ((uint64_t)function + 1) << 32 | (uint32_t)status;
    for (size_t i = key * 0x9e3779b97f4a7c15u >> 51;; i = (i + 1) % SEEN_SLOTS) {
        uint64_t there = atomic_load(&seen[i].key);
        if (there == 0 && atomic_load(&seen_count) >= SEEN_MOST) {
            atomic_fetch_add(&seen_lost, 1);
            return;
        }
        if (there == 0 && atomic_compare_exchange_strong(&seen[i].key, &there, key)) {
            atomic_fetch_add(&seen_count, 1);
            there = key;
        }
        if (there == key) {
            atomic_fetch_add(&seen[i].calls, 1);
            return;
        }
    }
}

static void coverage_clear(void)
{
    for (size_t i = 0; i < SEEN_SLOTS; i++) {
        atomic_store(&seen[i].calls, 0);
    }
}

static void coverage_print(FILE *text)
{
    const char *separator = "{";
    for (unsigned f = 0; f < FN_COUNT; f++) {
        const char *inner = NULL;
        for (size_t i = 0; i < SEEN_SLOTS; i++) {
            uint64_t key = atomic_load(&seen[i].key);
            unsigned long long calls = atomic_load(&seen[i].calls);
            if (key >> 32 != f + 1 || calls == 0) {
                continue;
            }
            if (inner == NULL) {
                fprintf(text, "%s\"%s\": {", separator, function_names[f]);
            }
            fprintf(text, "%s\"%d\": %llu", inner == NULL ? "" : inner, (int)(uint32_t)key, calls);
            separator = inner = ", ";
        }
        fputs(inner == NULL ? "" : "}", text);
    }
    fputs(*separator == '{' ? "{}\n" : "}\n", text);
    if (atomic_load(&seen_lost) != 0) {
        fprintf(stderr, "acl.sim: ACL_SIM_COVERAGE: %llu calls with further statuses are not listed\n",
                atomic_load(&seen_lost));
    }
}

/* ---- at the end of the process --------------------------------------------------------------- */

static void calls_print(FILE *text)
{
    const char *separator = "{";
    for (size_t i = 0; i < FN_COUNT; i++) {
        if (acl_sim_calls(i) != 0) {
            fprintf(text, "%s\"%s\": %llu", separator, function_names[i],
                    (unsigned long long)acl_sim_calls(i));
            separator = ", ";
        }
    }
    fputs(*separator == '{' ? "{}\n" : "}\n", text);
}

/* Appends a line to the file that the variable names, with a single write, so that lines of two processes do
   not mix. */
static void line_write(const char *variable, void (*print)(FILE *))
{
    const char *path = getenv(variable);
    if (path == NULL || *path == '\0') {
        return;
    }
    bool to_stderr = strcmp(path, "-") == 0;
    char *line = NULL;
    size_t length = 0;
    int fd = to_stderr ? STDERR_FILENO : output_open(path, false);
    FILE *text = fd < 0 ? NULL : open_memstream(&line, &length);
    if (text == NULL) {
        fprintf(stderr, "acl.sim: %s: cannot write %s\n", variable, path);
    } else {
        print(text);
        if (fclose(text) != 0 || write(fd, line, length) != (ssize_t)length) {
            fprintf(stderr, "acl.sim: %s: cannot write %s\n", variable, path);
        }
        free(line);
    }
    if (!to_stderr && fd >= 0) {
        close(fd);
    }
}

/* Clears the counters in a forked child, so that it counts only its own calls. */
static void counters_forked(void)
{
    acl_sim_calls_clear();
    coverage_clear();
}

__attribute__((constructor(105))) static void counters_watch(void)
{
    const char *path = getenv("ACL_SIM_COVERAGE");
    if (path != NULL && *path != '\0') {
        atomic_fetch_or(&gate_watch, GATE_COVERAGE);
    }
    pthread_atfork(NULL, NULL, counters_forked);
}

__attribute__((destructor)) static void counters_write(void)
{
    line_write("ACL_SIM_COUNTERS", calls_print);
    line_write("ACL_SIM_COVERAGE", coverage_print);
}
