/* race_report.c: reports each finding once, on standard error and as a line of JSON.
 *
 * ACL_SIM_RACES=1 starts the checker with the process. ACL_SIM_RACES_JSON=FILE appends each finding
 * to the file as one line of JSON; with '-' the lines go to standard error, which then has nothing
 * else. With ACL_SIM_RACES_FAIL=1 a process with findings ends with 1 instead of 0.
 *
 * Thread rule: race_lock; the functions of the control API take it. */
#include "base/checks.h"
#include "base/json.h"
#include "races/race_inside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FINDINGS_MOST = 1000, TOLD_MOST = 20 };

typedef struct Told {
    HostAct act;
    bool is_host;
    const RaceSite *first, *second;
    const char *first_name, *second_name;
    uint64_t times;
    char *json;
} Told;

static Told findings[FINDINGS_MOST];
static uint64_t finding_count;
static atomic_bool is_muted;
static int exit_status;
static pid_t home; /* the process that loaded the library; a forked child does not report */

/* ---- words --------------------------------------------------------------------------------------- */

const char *race_kind_word(TouchKind kind)
{
    static const char *const words[] = {"reads", "writes", "uses", "waits for or sets"};
    return words[kind];
}

const char *race_act_words(const RaceFinding *finding)
{
    if (!finding->is_host || finding->act == HOST_TOUCHES) {
        return "two accesses to the same bytes, neither ordered before the other";
    }
    return finding->act == HOST_FREES ? "memory freed under a task that was not seen complete"
                                      : "memory unmapped under a task that was not seen complete";
}

static const char *act_name(const RaceFinding *finding)
{
    return !finding->is_host || finding->act == HOST_TOUCHES ? "order"
           : finding->act == HOST_FREES                      ? "freed"
                                                             : "unmapped";
}

static void task_write(FILE *file, const RaceTask *task, const char *does, const char *state)
{
    if (task->stream == UINT32_MAX) {
        fprintf(file, "    %s: the host %s\n", task->name, does);
    } else {
        fprintf(file, "    %s: task %llu of stream %u on device %d, %s%s, queued\n", task->name,
                (unsigned long long)task->number, task->stream, task->device, does, state);
    }
    site_print(file, task->site);
}

const char *race_does_word(const RaceFinding *finding)
{
    return finding->is_host && finding->act == HOST_FREES    ? "frees them"
           : finding->is_host && finding->act == HOST_UNMAPS ? "unmaps them"
                                                             : race_kind_word(finding->second_kind);
}

static void finding_write(FILE *file, const RaceFinding *finding, uint64_t number)
{
    fprintf(file, "acl.sim: race %llu: %s\n  %zu bytes at %p\n", (unsigned long long)number,
            race_act_words(finding), (size_t)(finding->end - finding->begin), (void *)finding->begin);
    char tag[256];
    if (race_tag(finding->begin, tag, sizeof tag)) {
        fprintf(file, "  tag %s\n", tag);
    }
    task_write(file, finding->first, race_kind_word(finding->first_kind),
               finding->queued ? ", not run yet" : "");
    task_write(file, finding->second, race_does_word(finding), "");
}

/* ---- JSON ---------------------------------------------------------------------------------------- */

static void json_task(FILE *file, const char *name, const RaceTask *task, const char *access)
{
    fprintf(file, ", \"%s\": {\"name\": ", name);
    json_print(file, task->name);
    fprintf(file, ", \"access\": \"%s\"", access);
    if (task->stream != UINT32_MAX) {
        fprintf(file, ", \"stream\": %u, \"device\": %d, \"task\": %llu", task->stream,
                task->device, (unsigned long long)task->number);
    }
    fputs(", \"queued_at\": ", file);
    site_print_json(file, task->site);
    fputs("}", file);
}

static char *finding_json(const RaceFinding *finding)
{
    static const char *const accesses[] = {"read", "write", "use", "atomic"};
    char *text = NULL, tag[256];
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (file == NULL) {
        return NULL;
    }
    fprintf(file, "{\"finding\": \"%s\", \"address\": \"%p\", \"bytes\": %zu", act_name(finding),
            (void *)finding->begin, (size_t)(finding->end - finding->begin));
    if (race_tag(finding->begin, tag, sizeof tag)) {
        fputs(", \"tag\": ", file);
        json_print(file, tag);
    }
    json_task(file, "first", finding->first, accesses[finding->first_kind]);
    const char *second = !finding->is_host || finding->act == HOST_TOUCHES
                             ? accesses[finding->second_kind]
                             : finding->act == HOST_FREES ? "free" : "unmap";
    json_task(file, "second", finding->second, second);
    fputs("}", file);
    fclose(file);
    return text;
}

/* Appends a line with one write, so that several processes can use one file. */
static void json_append(const char *json)
{
    const char *path = getenv("ACL_SIM_RACES_JSON");
    FILE *file = path == NULL || *path == '\0' || json == NULL ? NULL
                 : strcmp(path, "-") == 0                      ? stderr
                                                               : fopen(path, "a");
    if (file != NULL) {
        fprintf(file, "%s\n", json);
        fflush(file);
    }
    if (file != NULL && file != stderr) {
        fclose(file);
    }
}

/* ---- findings ------------------------------------------------------------------------------------ */

bool races_muted(void)
{
    return atomic_load(&is_muted);
}

/* Returns the earlier finding at the same two places, or NULL. */
static Told *told_find(const RaceFinding *finding)
{
    for (uint64_t i = 0; i < finding_count; i++) {
        Told *told = &findings[i];
        if (told->act == finding->act && told->is_host == finding->is_host
            && told->first == finding->first->site && told->second == finding->second->site
            && told->first_name == finding->first->name
            && told->second_name == finding->second->name) {
            return told;
        }
    }
    return NULL;
}

static void finding_tell(const RaceFinding *finding, const char *json)
{
    const char *path = getenv("ACL_SIM_RACES_JSON");
    bool only_json = path != NULL && strcmp(path, "-") == 0;
    if (!only_json && finding_count <= TOLD_MOST) {
        finding_write(stderr, finding, finding_count);
    }
    json_append(json);
}

void race_report(const RaceFinding *given)
{
    if (is_muted) {
        return;
    }
    RaceTask second = *given->second;
    if (strncmp(second.name, "sim_", 4) == 0) {
        second.name += 4; /* skips "sim_": a function of the simulator, named after the call */
    }
    RaceFinding finding = *given;
    finding.second = &second;
    if (finding.is_host) {
        second.site = site_here();
    }
    if (check_on(CHECK_ANY)) {
        checks.finding(&finding);
        return;
    }
    Told *told = told_find(&finding);
    if (told != NULL || finding_count == FINDINGS_MOST) {
        if (told != NULL) {
            told->times++;
        }
        return;
    }
    char *json = finding_json(&finding);
    findings[finding_count++] =
        (Told){finding.act, finding.is_host, finding.first->site, second.site,
               finding.first->name, second.name, 1, json};
    finding_tell(&finding, json);
}

uint64_t acl_sim_races(void)
{
    pthread_mutex_lock(&race_lock);
    uint64_t count = finding_count;
    pthread_mutex_unlock(&race_lock);
    return count;
}

const char *acl_sim_race(uint64_t index)
{
    return index < acl_sim_races() ? findings[index].json : NULL;
}

void acl_sim_races_mute(int muted)
{
    pthread_mutex_lock(&race_lock);
    is_muted = muted != 0;
    pthread_mutex_unlock(&race_lock);
}

/* ---- the process --------------------------------------------------------------------------------- */

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && *value != '\0' && strcmp(value, "0") != 0;
}

static void on_end(int status, void *nothing)
{
    (void)nothing;
    exit_status = status;
}

/* Runs in the child of a fork. Initialises race_lock again, because a thread of the parent may have held it. */
static void on_fork_child(void)
{
    if (handle_live(HANDLE_CONTEXT) != 0) {
        atomic_store(&race_active, false);
    }
    pthread_mutex_init(&race_lock, NULL);
}

/* Keeps the library loaded, because on_end runs at exit, even if the program has closed the library by
 * then. */
static void library_keep(void)
{
    Dl_info info;
    if (dladdr((const void *)(uintptr_t)&race_lock, &info) != 0) {
        (void)dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    }
}

__attribute__((constructor(106))) static void races_begin(void)
{
    if (is_set("ACL_SIM_RACES")) {
        home = getpid();
        library_keep();
        atomic_store(&race_active, true);
        (void)on_exit(on_end, NULL);
        (void)pthread_atfork(NULL, NULL, on_fork_child);
    }
}

__attribute__((destructor)) static void races_end(void)
{
    if (finding_count == 0 || getpid() != home) {
        return;
    }
    uint64_t times = 0;
    for (uint64_t i = 0; i < finding_count; i++) {
        times += findings[i].times;
    }
    fprintf(stderr, "acl.sim: races: %llu found (seen %llu times)%s\n",
            (unsigned long long)finding_count, (unsigned long long)times,
            finding_count > TOLD_MOST ? "; the first 20 are above" : "");
    if (is_set("ACL_SIM_RACES_FAIL") && exit_status == 0) {
        fflush(NULL);
        _exit(1);
    }
}
