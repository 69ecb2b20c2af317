/* Status codes with a message: the thread's message text and its last error.
 *
 * Messages pile up: the newest is put in front and reading takes nothing away, as observed with the
 * runtime.  Codes of the ACL layer are returned but not remembered as the last error; those of the
 * runtime are, and success does not clear them.  A note is a message without an error: it is there
 * until the thread's next call that needs a context, so that programs which take any message for a
 * failure see none after work that succeeded.
 *
 * Whoever finds a fault says what was expected; the gate that the call came through knows its name
 * and its arguments, and puts them to the newest message when the call fails (error_sign).  So a
 * message names what the user called, whatever part of the simulator found out.
 *
 * Thread rule: everything is thread-local. */
#include "core.h"
#include "errorwords.h"
#include "exports.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, LINE_MAX_BYTES = 512, ARGUMENTS_MAX = 512, WORDS_MAX = 256 };

typedef struct Messages {
    char text[TEXT_MAX];  /* all messages, newest first */
    char shown[TEXT_MAX]; /* what aclGetRecentErrMsg last returned */
} Messages;

static _Thread_local Messages *messages; /* made by the first message */
static _Thread_local aclError last;
static _Thread_local aclError unsigned_code; /* of the newest message; 0 once a gate signed it */
_Thread_local const char *error_note_text;
static pthread_key_t messages_key;

/* For the first thread whose first message comes when the host has no memory for one: that message
   may be the one that says so, for example that the system's limit of mappings is reached. */
static Messages spare;
static atomic_bool spare_taken;

/* At the thread's end; destructors that run after this one may still make calls that fail. */
static void messages_drop(void *given)
{
    messages = NULL;
    if (given == &spare) {
        memset(&spare, 0, sizeof spare);
        atomic_store(&spare_taken, false);
    } else {
        free(given);
    }
}

__attribute__((constructor(101))) static void messages_key_make(void)
{
    pthread_key_create(&messages_key, messages_drop);
}

static Messages *messages_get(void)
{
    if (messages == NULL) {
        messages = calloc(1, sizeof *messages);
        if (messages == NULL && !atomic_exchange(&spare_taken, true)) {
            messages = &spare;
        }
        pthread_setspecific(messages_key, messages);
    }
    return messages;
}

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
    Messages *all = messages_get();
    if (all == NULL) {
        return;
    }
    size_t length = strlen(line);
    size_t kept = strlen(all->text);
    if (kept + length + 1 > TEXT_MAX) {
        kept = TEXT_MAX - length - 1;
    }
    memmove(all->text + length, all->text, kept);
    memcpy(all->text, line, length);
    all->text[length + kept] = '\0';
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
    unsigned_code = code;
}

/* Writes the newest message anew, as one of `function`, with its arguments. */
static void newest_sign(const char *function, const char *arguments)
{
    char line[LINE_MAX_BYTES + ARGUMENTS_MAX + 64];
    const char *begin = messages->text, *end = strchr(begin, '\n');
    const char *head = strstr(begin, "] EH");
    const char *name = head == NULL ? NULL : strchr(head, ':');
    const char *failed = name == NULL ? NULL : strstr(name, " failed with ");
    if (end == NULL || failed == NULL || failed > end) {
        return;
    }
    snprintf(line, sizeof line, "%.*s %s%.*s%s%s\n", (int)(name + 1 - begin), begin, function,
             (int)(end - failed), failed, arguments[0] == '\0' ? "" : "; called with ", arguments);
    memmove(messages->text, end + 1, strlen(end + 1) + 1);
    text_push(line);
}

static void error_sign_list(
    const char *function, aclError status, const char *names, va_list values)
{
    char arguments[ARGUMENTS_MAX];
    bool ours = unsigned_code != 0 && (status == unsigned_code || status == ERROR_ANY);
    if (ours && messages != NULL) {
        arguments_words(names, values, arguments, sizeof arguments);
        newest_sign(function, arguments);
    }
    unsigned_code = 0;
}

void error_sign(const char *function, aclError status, const char *names, ...)
{
    va_list values;
    va_start(values, names);
    error_sign_list(function, status, names, values);
    va_end(values);
}

void acl_sim_error_sign(const char *function, aclError status, const char *names, ...)
{
    va_list values;
    va_start(values, names);
    error_sign_list(function, status, names, values);
    va_end(values);
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
    char words[WORDS_MAX];
    condition_words(condition, words, sizeof words);
    return error_set(function, code, "argument check failed, expected: %s", words);
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

void error_take(char *text, size_t size)
{
    const char *head = messages == NULL ? NULL : strstr(messages->text, "] EH");
    const char *what = head == NULL ? "" : strchr(head, ':') + 2;
    snprintf(text, size, "%.*s", (int)strcspn(what, "\n"), what);
    unsigned_code = 0;
    if (messages != NULL) {
        messages->text[0] = '\0';
    }
}

/* Without a context the runtime's own look-up leaves a message, and so does this. */
const char *sim_aclGetRecentErrMsg(void)
{
    bool none = messages == NULL || messages->text[0] == '\0';
    if (none && error_note_text != NULL) {
        return error_note_text;
    }
    if (none && context_current() == NULL) {
        text_push("[PID: 0] EH0007: aclGetRecentErrMsg: no context is current in this thread\n");
    } else if (none) {
        return NULL;
    }
    if (messages == NULL) {
        return NULL;
    }
    memcpy(messages->shown, messages->text, sizeof messages->shown);
    return messages->shown;
}
