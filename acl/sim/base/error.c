/* Status codes with a message: the thread's message text and its last error.
 *
 * Messages are collected, the newest first, until the program reads them, which deletes them all.
 * Codes of the runtime become the last error; codes of the ACL layer do not. Success does not clear
 * the last error. The number of a message (EH0008, EE1003) shows its layer and its kind.
 *
 * The function that finds an error writes what was expected. The gate of the call knows the
 * function that the user called and its arguments, and adds them to the newest message when the
 * call fails (error_sign). So a message names the function that the user called, whichever part
 * of the simulator found the error.
 *
 * Thread rule: everything is thread-local. */
#include "base/checks.h"
#include "base/core.h"
#include "base/error_text.h"
#include "generated/exports.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 4096, LINE_MAX_BYTES = 512, ARGUMENTS_MAX = 512, WORDS_MAX = 256 };

typedef struct Messages {
    char text[TEXT_MAX];  /* all messages, newest first */
    char shown[TEXT_MAX]; /* the text that aclGetRecentErrMsg returned last */
    char called[ARGUMENTS_MAX]; /* for the trace: the arguments of the call that ends now, or "" */
} Messages;

static _Thread_local Messages *messages; /* NULL until the thread's first message */
static _Thread_local aclError last;
static _Thread_local aclError unsigned_code; /* status of the newest message; 0 if a gate has signed it */
static pthread_key_t messages_key;

/* Used by one thread for which no memory can be allocated at its first message. That message may
 * itself report the lack of memory, for example the system's limit of mappings. */
static Messages spare;
static atomic_bool spare_taken;

/* Runs at the end of a thread. Sets `messages` to NULL, because later destructors of the thread may
 * make calls that fail and write messages again. */
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

/* Returns the name that users know: "aclrtMalloc" for "sim_aclrtMalloc". */
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

/* True if the code becomes the last error, as in the runtime: 107xxx, 207xxx, 507xxx. */
static bool code_is_remembered(aclError code)
{
    return code / 1000 % 100 == 7;
}

/* Returns the number that the runtime gives to messages with this code. If `null` (the argument is
 * NULL), the number depends on the layer only. */
static const char *number_of(aclError code, bool null)
{
    static const struct {
        aclError code;
        const char *number;
    } known[] = {
        {ACL_ERROR_INVALID_PARAM, "EH0007"},       {ACL_ERROR_INVALID_FILE, "EH0003"},
        {ACL_ERROR_RT_PARAM_INVALID, "EE1003"},    {ACL_ERROR_RT_INVALID_DEVICEID, "EE1003"},
        {ACL_ERROR_RT_CONTEXT_NULL, "EE1018"},     {ACL_ERROR_RT_INVALID_HANDLE, "EE1017"},
        {ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "EE1005"}, {ACL_ERROR_RT_MEMORY_ALLOCATION, "EL0004"},
        {ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "EE1002"}, {ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "EE1002"},
    };
    if (null) {
        return code_is_remembered(code) ? "EE1004" : "EH0008";
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].code == code) {
            return known[i].number;
        }
    }
    return code_is_remembered(code) ? "EE9999" : "EH9999";
}

static void message_add(const char *function, aclError code, bool null, const char *format,
                        va_list values)
{
    char what[LINE_MAX_BYTES - 128];
    char line[LINE_MAX_BYTES];
    vsnprintf(what, sizeof what, format, values);
    snprintf(line, sizeof line, "[PID: %d] %s: %.64s failed with %d: %s\n", (int)getpid(),
             number_of(code, null), public_name(function), code, what);
    text_push(line);
    unsigned_code = code;
}

/* True if the message says that a handle is not live, and the arguments show that this handle is NULL. */
static bool null_was_meant(const char *message, const char *end, const char *arguments)
{
    char given[LINE_MAX_BYTES];
    const char *subject = strstr(message, ", expected: ");
    const char *live = subject == NULL ? NULL : strstr(subject, " is a live ");
    if (live == NULL || live > end) {
        return false;
    }
    subject += strlen(", expected: ");
    snprintf(given, sizeof given, "%.*s=NULL", (int)(live - subject), subject);
    const char *found = strstr(arguments, given);
    return found != NULL && (found == arguments || found[-1] == ' ');
}

/* Rewrites the newest message: it becomes a message of `function` and gets the arguments of the call. */
static void newest_sign(const char *function, const char *arguments)
{
    char line[LINE_MAX_BYTES + ARGUMENTS_MAX + 64];
    const char *begin = messages->text, *end = strchr(begin, '\n');
    const char *head = strstr(begin, "] E");
    const char *name = head == NULL ? NULL : strchr(head, ':');
    const char *failed = name == NULL ? NULL : strstr(name, " failed with ");
    if (end == NULL || failed == NULL || failed > end) {
        return;
    }
    bool null = null_was_meant(begin, end, arguments);
    snprintf(line, sizeof line, "%.*s%.6s: %s%.*s%s%s\n", (int)(head + 2 - begin), begin,
             null ? "EH0008" : head + 2, function, (int)(end - failed), failed,
             arguments[0] == '\0' ? "" : "; called with ", arguments);
    memmove(messages->text, end + 1, strlen(end + 1) + 1);
    text_push(line);
}

atomic_uint gate_watch; /* defined here and not in call_hooks.c, because error_sign reads it */

/* Keeps the arguments of a call for the trace. */
static void arguments_keep(aclError status, const char *names, va_list values)
{
    Messages *all = messages_get();
    if (all != NULL) {
        arguments_words(names, values, status == ACL_SUCCESS, all->called, sizeof all->called);
    }
}

void arguments_take(char *text, size_t room)
{
    snprintf(text, room, "%s", messages == NULL ? "" : messages->called);
    if (messages != NULL) {
        messages->called[0] = '\0';
    }
}

static void error_sign_list(
    const char *function, aclError status, const char *names, va_list values)
{
    char arguments[ARGUMENTS_MAX];
    bool ours = unsigned_code != 0 && (status == unsigned_code || status == ERROR_ANY);
    if ((atomic_load_explicit(&gate_watch, memory_order_relaxed) & GATE_TRACE) != 0) {
        va_list again;
        va_copy(again, values);
        arguments_keep(status, names, again);
        va_end(again);
    }
    if (status == ACL_SUCCESS) {
        return;
    }
    if (ours && messages != NULL) {
        arguments_words(names, values, false, arguments, sizeof arguments);
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
    if (status != ACL_SUCCESS && check_on(CHECK_MEM)) {
        va_start(values, names);
        checks.arguments(function, names, values);
        va_end(values);
    }
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
    message_add(function, code, false, format, values);
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
    message_add(function, code, false, format, values);
    va_end(values);
    return code;
}

__attribute__((format(printf, 3, 4))) static void message_of_null(
    const char *function, aclError code, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    message_add(function, code, true, format, values);
    va_end(values);
    last = code_is_remembered(code) ? code : last;
}

aclError error_argument(const char *function, aclError code, const char *condition)
{
    char words[WORDS_MAX];
    condition_words(condition, words, sizeof words);
    if (condition_is_pointer(condition)) {
        message_of_null(function, code, "argument check failed, expected: %s", words);
        return code;
    }
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
    const char *head = messages == NULL ? NULL : strstr(messages->text, "] E");
    const char *what = head == NULL ? "" : strchr(head, ':') + 2;
    snprintf(text, size, "%.*s", (int)strcspn(what, "\n"), what);
    unsigned_code = 0;
    if (messages != NULL) {
        messages->text[0] = '\0';
    }
}

const char *error_peek(void)
{
    return messages == NULL || messages->text[0] == '\0' ? NULL : messages->text;
}

const char *error_read(void)
{
    if (error_peek() == NULL) {
        return NULL;
    }
    unsigned_code = 0;
    memcpy(messages->shown, messages->text, sizeof messages->shown);
    messages->text[0] = '\0';
    return messages->shown;
}
