/* dump.c: the calls that switch data dumps on and off, and the application's log.

   A simulated device dumps nothing; the calls only check their order and their arguments, as the
   runtime does.  If ASCEND_SLOG_PRINT_TO_STDOUT is 1, aclAppLog writes messages of the level
   ASCEND_GLOBAL_LOG_LEVEL and above to standard output, as CANN's log does.  Otherwise it writes nothing
   (CANN would write files in the user's home).

   Thread rule: one lock guards the state, and no other lock is taken while it is held; each line of the log is
   written by one printf. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/core.h"
#include "streams/device.h"
#include "generated/exports.h"

FILE_LOCK(dump_lock);
static bool dump_started;

static aclError initialised_check(const char *function)
{
    if (!acl_initialised()) {
        return error_set(function, ACL_ERROR_UNINITIALIZE, "aclInit has to be called before");
    }
    return ACL_SUCCESS;
}

/* Sets dump_started to `value`; false if it had this value before. */
static bool dump_switch(bool value)
{
    pthread_mutex_lock(&dump_lock);
    bool changed = dump_started != value;
    dump_started = value;
    pthread_mutex_unlock(&dump_lock);
    return changed;
}

static bool dump_is_started(void)
{
    pthread_mutex_lock(&dump_lock);
    bool started = dump_started;
    pthread_mutex_unlock(&dump_lock);
    return started;
}

aclError sim_aclmdlInitDump(void)
{
    TRY(initialised_check(__func__));
    if (!dump_switch(true)) {
        return fail(ACL_ERROR_REPEAT_INITIALIZE, "aclmdlInitDump was called before");
    }
    return ACL_SUCCESS;
}

/* True if the text may be a dump configuration, which is a JSON object: only the first character that is not white
   space is checked. */
static bool config_plausible(const char *text)
{
    while (*text == ' ' || *text == '\n' || *text == '\t' || *text == '\r') {
        text++;
    }
    return *text == '\0' || *text == '{';
}

aclError sim_aclmdlSetDump(const char *dumpCfgPath)
{
    char head[256];
    TRY(initialised_check(__func__));
    if (!dump_is_started()) {
        return fail(ACL_ERROR_DUMP_NOT_RUN, "aclmdlInitDump has to be called before");
    }
    REQUIRE(dumpCfgPath);
    FILE *file = fopen(dumpCfgPath, "r");
    if (file == NULL) {
        return fail(ACL_ERROR_INVALID_FILE, "cannot open %.200s", dumpCfgPath);
    }
    size_t length = fread(head, 1, sizeof head - 1, file);
    fclose(file);
    head[length] = '\0';
    if (!config_plausible(head)) {
        return fail(ACL_ERROR_INVALID_DUMP_CONFIG, "%.200s is not a JSON object", dumpCfgPath);
    }
    return ACL_SUCCESS;
}

aclError sim_aclmdlFinalizeDump(void)
{
    TRY(initialised_check(__func__));
    if (!dump_switch(false)) {
        return fail(ACL_ERROR_DUMP_NOT_RUN, "aclmdlInitDump was not called");
    }
    return ACL_SUCCESS;
}

/* ---- the application's log ------------------------------------------------------------------- */

static bool log_printed(aclLogLevel level)
{
    const char *to_stdout = getenv("ASCEND_SLOG_PRINT_TO_STDOUT");
    const char *least = getenv("ASCEND_GLOBAL_LOG_LEVEL");
    int threshold = least != NULL && *least >= '0' && *least <= '4' ? *least - '0' : ACL_ERROR;
    return to_stdout != NULL && to_stdout[0] == '1' && (int)level >= threshold;
}

/* Exported here and not in exports.c, because the generator cannot make gates for functions with variable arguments. */
SIM_SHARED void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line,
    const char *fmt, ...)
{
    static const char *const levels[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
    char text[1024];
    if ((unsigned)logLevel > ACL_ERROR || fmt == NULL || !log_printed(logLevel)) {
        return;
    }
    va_list arguments;
    va_start(arguments, fmt);
    vsnprintf(text, sizeof text, fmt, arguments);
    va_end(arguments);
    printf("[%s] APP(%d,):[%s:%u]%s %s\n", levels[logLevel], (int)getpid(),
           file != NULL ? file : "", line, func != NULL ? func : "", text);
}
