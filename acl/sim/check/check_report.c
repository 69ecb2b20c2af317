/* check_report.c: writes each finding of the checker once, to standard error and as a line of JSON.
 *
 * ACL_SIM_CHECK=TOOLS starts the checker with the process (`all`, or some of mem,order,leak,init).
 * ACL_SIM_CHECK_JSON=FILE: each finding is appended to the file as one JSON object in a line, in one write, so that
 * several processes can share the file.  ACL_SIM_CHECK_TEXT=0: nothing is written to standard error.
 * `aclpool sim check` sets all three variables, finds the source lines of C frames, applies suppressions, and prints a
 * summary.
 *
 * Thread rule: one lock guards the table of findings.  It is not held while a report is written, as race_tag then calls
 * the program's function for tags. */
#include "base/json.h"
#include "check/checker.h"
#include "generated/exports.h"
#include "races/race_inside.h"
#include "streams/device.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOLD = 4096 };

typedef struct Told {
    const char *rule;
    char what[CHECK_WORDS]; /* text of the first place; "" if there is none */
    const RaceSite *sites[CHECK_PLACES];
} Told;

FILE_LOCK(told_lock);
static Told told[TOLD];
static size_t told_count;
static _Thread_local unsigned call;
static _Thread_local bool call_known;
static _Thread_local uint64_t call_number;
static _Atomic uint64_t newest_call;

static const char *tool_name(unsigned tool)
{
    return tool == CHECK_MEM ? "mem" : tool == CHECK_ORDER ? "order"
         : tool == CHECK_LEAK ? "leak" : "init";
}

void check_entered(unsigned function)
{
    call = function;
    call_known = true;
    call_number = atomic_fetch_add_explicit(&newest_call, 1, memory_order_relaxed) + 1;
}

uint64_t check_call_number(void)
{
    return call_number;
}

bool check_call_allocates(void)
{
    const char *name = check_call();
    return strncmp(name, "aclrtMalloc", 11) == 0 || strcmp(name, "aclrtMemAllocManaged") == 0;
}

const char *check_call(void)
{
    return call_known ? function_names[call] : "the program";
}

/* ---- building ------------------------------------------------------------------------------------ */

CheckReport check_begin(unsigned tool, const char *rule, const char *format, ...)
{
    CheckReport report = {.tool = tool, .rule = rule};
    va_list values;
    va_start(values, format);
    vsnprintf(report.message, sizeof report.message, format, values);
    va_end(values);
    return report;
}

void check_place(CheckReport *report, const RaceSite *site, const char *format, ...)
{
    if (report->places == CHECK_PLACES) {
        return;
    }
    va_list values;
    va_start(values, format);
    vsnprintf(report->place[report->places].what, CHECK_WORDS, format, values);
    va_end(values);
    report->place[report->places++].site = site;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static void text_write(FILE *file, const CheckReport *report)
{
    fprintf(file, "acl.sim: check: %s: %s\n", report->rule, report->message);
    char tag[256];
    if (report->address != 0 && race_tag(report->address, tag, sizeof tag)) {
        fprintf(file, "    tag %s\n", tag);
    }
    for (size_t i = 0; i < report->places; i++) {
        fprintf(file, "    %s\n", report->place[i].what);
        site_print(file, report->place[i].site);
    }
}

/* Writes a frame of a call stack as [file, offset from the file's load address, address], for addr2line. */
static void json_frame(FILE *file, const void *address, const char *separator)
{
    Dl_info info;
    bool known = dladdr(address, &info) != 0 && info.dli_fname != NULL;
    fprintf(file, "%s[", separator);
    json_print(file, known ? info.dli_fname : "");
    fprintf(file, ", %zu, %zu]", known ? (size_t)((uintptr_t)address - (uintptr_t)info.dli_fbase) : 0,
            (size_t)(uintptr_t)address);
}

static void json_place(FILE *file, const char *what, const RaceSite *site)
{
    fputs("{\"what\": ", file);
    json_print(file, what);
    fputs(", \"stack\": ", file);
    site_print_json(file, site);
    fputs(", \"frames\": [", file);
    for (int i = 0; site != NULL && i < site->depth; i++) {
        json_frame(file, site->at[i], i == 0 ? "" : ", ");
    }
    fputs("]}", file);
}

static void json_write(FILE *file, const CheckReport *report)
{
    fprintf(file, "{\"rule\": \"%s\", \"tool\": \"%s\", \"process\": %d, \"message\": ",
            report->rule, tool_name(report->tool), (int)getpid());
    json_print(file, report->message);
    if (report->address != 0) {
        fprintf(file, ", \"address\": \"%p\", \"bytes\": %zu", (void *)report->address,
                report->bytes);
    }
    fputs(", \"places\": [", file);
    for (size_t i = 0; i < report->places; i++) {
        fputs(i == 0 ? "" : ", ", file);
        json_place(file, report->place[i].what, report->place[i].site);
    }
    fputs("]}\n", file);
}

/* Writes the report with a single write. */
static void out_write(const CheckReport *report, FILE *to,
                      void (*write)(FILE *file, const CheckReport *report))
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (file != NULL) {
        write(file, report);
        fclose(file);
        fwrite(text, 1, size, to);
        fflush(to);
        free(text);
    }
}

static void report_write(const CheckReport *report)
{
    const char *quiet = getenv("ACL_SIM_CHECK_TEXT"), *path = getenv("ACL_SIM_CHECK_JSON");
    if (quiet == NULL || strcmp(quiet, "0") != 0) {
        out_write(report, stderr, text_write);
    }
    FILE *file = path == NULL || *path == '\0' ? NULL : fopen(path, "a");
    if (file != NULL) {
        out_write(report, file, json_write);
        fclose(file);
    }
}

/* ---- once each ----------------------------------------------------------------------------------- */

static bool told_is(const Told *one, const CheckReport *report)
{
    bool same = one->rule == report->rule &&
                strcmp(one->what, report->places != 0 ? report->place[0].what : "") == 0;
    for (size_t i = 0; i < CHECK_PLACES && same; i++) {
        same = one->sites[i] == (i < report->places ? report->place[i].site : NULL);
    }
    return same;
}

/* Adds the report to the table; false if the table has an equal report, or is full. */
static bool told_add(const CheckReport *report)
{
    for (size_t i = 0; i < told_count; i++) {
        if (told_is(&told[i], report)) {
            return false;
        }
    }
    if (told_count == TOLD) {
        return false;
    }
    Told *one = &told[told_count++];
    one->rule = report->rule;
    if (report->places != 0) {
        strcpy(one->what, report->place[0].what);
    }
    for (size_t i = 0; i < report->places; i++) {
        one->sites[i] = report->place[i].site;
    }
    return true;
}

void check_tell(const CheckReport *report)
{
    if (!check_on(report->tool) || races_muted()) {
        return;
    }
    pthread_mutex_lock(&told_lock);
    bool added = told_add(report);
    pthread_mutex_unlock(&told_lock);
    if (added) {
        report_write(report);
    }
}

/* ---- races ---------------------------------------------------------------------------------------- */

/* Writes a finding of the order checker as a report of this checker. */
void check_finding(const RaceFinding *finding)
{
    bool in_use = finding->is_host && finding->act != HOST_TOUCHES;
    const RaceTask *tasks[] = {finding->first, finding->second};
    CheckReport report = check_begin(
        in_use ? CHECK_MEM : CHECK_ORDER,
        in_use ? "freed-in-use" : "order", "%s: %zu bytes at %p", race_act_words(finding),
        (size_t)(finding->end - finding->begin), (void *)finding->begin);
    report.address = finding->begin;
    report.bytes = finding->end - finding->begin;
    for (size_t i = 0; i < 2; i++) {
        const RaceTask *task = tasks[i];
        const char *does = i == 0 ? race_kind_word(finding->first_kind) : race_does_word(finding);
        if (task->stream == UINT32_MAX) {
            check_place(&report, task->site, "%s: the host %s", task->name, does);
        } else {
            check_place(&report, task->site, "%s: a task of stream %u on device %d, %s%s, queued",
                        task->name, task->stream, task->device, does,
                        i == 0 && finding->queued ? ", not run yet" : "");
        }
    }
    check_tell(&report);
}

/* ---- the process --------------------------------------------------------------------------------- */

static unsigned tool_of(const char *word, size_t length)
{
    static const char *const names[] = {"mem", "order", "leak", "init", "all"};
    static const unsigned tools[] = {CHECK_MEM, CHECK_ORDER, CHECK_LEAK, CHECK_INIT, CHECK_ANY};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i]) == length && strncmp(word, names[i], length) == 0) {
            return tools[i];
        }
    }
    fprintf(stderr, "acl.sim: ACL_SIM_CHECK: '%.*s' is not a tool, expected some of mem,order,"
            "leak,init, or all\n", (int)length, word);
    return 0;
}

static unsigned tools_read(const char *text)
{
    unsigned tools = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        tools |= length == 0 ? 0 : tool_of(text, length);
        text += length + (text[length] == ',');
    }
    return tools;
}

/* In the child of a fork: objects that the parent made are not leaks of the child.  If the parent uses a device, the
 * checker is off in the child.  Otherwise the child is checked, too; no thread held a lock of the checker then. */
static void on_fork_child(void)
{
    check_forget_parent();
    if (devices_in_use()) {
        atomic_store(&check_tools, 0);
    }
    pthread_mutex_init(&told_lock, NULL);
}

/* The priority 105 makes this constructor run after that of config.c and before that of race_report.c. */
__attribute__((constructor(105))) static void check_start(void)
{
    const char *wanted = getenv("ACL_SIM_CHECK");
    unsigned tools = wanted == NULL ? 0 : tools_read(strcmp(wanted, "0") == 0 ? "" : wanted);
    if (tools == 0) {
        return;
    }
    config.strict = config.strict || (tools & CHECK_MEM) != 0;
    checks = (Checks){
        .handle_made = check_handle_made,
        .handle_gone = check_handle_gone,
        .arguments = check_arguments,
        .finding = check_finding,
        .step = shadow_step,
        .access = check_access,
        .pointer = check_pointer,
        .record_queued = check_record_queued,
        .record_over = check_record_over,
        .wait_begins = check_wait_begins,
        .wait_ends = check_wait_ends,
        .cycle = check_cycle,
        .destroyed_in_use = check_destroyed_in_use,
        .device_gone = check_leaks_of_device,
        .finalized = check_finalized,
        .block_made = check_block_made,
        .block_freed = check_block_freed,
        .block_keep = check_block_keep,
        .quarantine_empty = check_quarantine_empty,
        .free_refused = check_free_refused,
        .host_step = shadow_host,
    };
    atomic_store(&check_tools, tools);
    atomic_store(&race_active, true);
    if ((tools & (CHECK_MEM | CHECK_ORDER)) != 0) {
        check_faults_catch();
    }
    (void)pthread_atfork(NULL, NULL, on_fork_child);
}

__attribute__((destructor)) static void check_end(void)
{
    if (check_on(CHECK_LEAK)) {
        check_leaks_of_process();
    }
}
