/* Status codes with a message: the thread's message text and its last error.
 *
 * Messages pile up: the newest is put in front and reading takes nothing away, as observed with the
 * runtime.  Codes of the ACL layer are returned but not remembered as the last error; those of the
 * runtime are, and success does not clear them.
 *
 * Thread rule: everything is thread-local. */
#include "core.h"
#include "exports.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, LINE_MAX_BYTES = 512 };

static _Thread_local char text[TEXT_MAX];  /* all messages, newest first */
static _Thread_local char shown[TEXT_MAX]; /* what aclGetRecentErrMsg last returned */
static _Thread_local aclError last;

void sim_panic(const char *what, const char *file, int line)
{
    fprintf(stderr, "acl.sim: broken invariant %s (%s:%d)\n", what, file, line);
    abort();
}

/* "sim_aclrtMalloc" is known to users as "aclrtMalloc". */
static const char *public_name(const char *function)
{
    return strncmp(function, "sim_", 4) == 0 ? function + 4 : function;
}

static void text_push(const char *line)
{
    size_t length = strlen(line);
    size_t kept = strlen(text);
    if (kept + length + 1 > TEXT_MAX) {
        kept = TEXT_MAX - length - 1;
    }
    memmove(text + length, text, kept);
    memcpy(text, line, length);
    text[length + kept] = '\0';
}

/* Whether a code is one that the runtime remembers: 107xxx, 207xxx, 507xxx. */
static bool code_is_remembered(aclError code)
{
    return code / 1000 % 100 == 7;
}

static void message_add(const char *function, aclError code, const char *format, va_list values)
{
    char what[LINE_MAX_BYTES - 128];
    char line[LINE_MAX_BYTES];
    vsnprintf(what, sizeof what, format, values);
    snprintf(line, sizeof line, "[PID: %d] EH%04d: %.64s failed with %d: %s\n", (int)getpid(),
             code_is_remembered(code) ? 9 : 1, public_name(function), code, what);
    text_push(line);
}

aclError error_set(const char *function, aclError code, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    message_add(function, code, format, values);
    va_end(values);
    if (code_is_remembered(code)) {
        last = code;
    }
    return code;
}

aclError error_set_quiet(const char *function, aclError code, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    message_add(function, code, format, values);
    va_end(values);
    return code;
}

aclError error_argument(const char *function, aclError code, const char *condition)
{
    return error_set(function, code, "argument check failed, expected: %s", condition);
}

aclError sim_aclrtPeekAtLastError(aclrtLastErrLevel level)
{
    REQUIRE(level == ACL_RT_THREAD_LEVEL);
    return last;
}

aclError sim_aclrtGetLastError(aclrtLastErrLevel level)
{
    REQUIRE(level == ACL_RT_THREAD_LEVEL);
    aclError code = last;
    last = ACL_SUCCESS;
    return code;
}

const char *sim_aclGetRecentErrMsg(void)
{
    if (text[0] == '\0') {
        return NULL;
    }
    memcpy(shown, text, sizeof shown);
    return shown;
}
