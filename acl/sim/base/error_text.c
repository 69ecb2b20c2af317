/* error_text.c: see error_text.h.
 *
 * Argument checks are macros that get their condition as program text. Most conditions are
 * arithmetic, which a reader understands. Conditions with casts or with calls that query the
 * handle table are translated to words here, so that a check needs no text of its own.
 *
 * No state: any thread. */
#include "base/error_text.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct Text {
    char *at;
    size_t room;
} Text;

/* Appends text and a terminating zero byte; text that does not fit is cut off. */
__attribute__((format(printf, 2, 3))) static void text_add(Text *text, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int length = vsnprintf(text->at, text->room, format, values);
    va_end(values);
    size_t used = length < 0 ? 0 : (size_t)length;
    used = used < text->room ? used : text->room - 1;
    text->at += used;
    text->room -= used;
}

/* The words for calls in conditions that query their first argument. If the second argument is a
 * kind (HANDLE_TENSOR_DESC), its words after the first underscore are added ("tensor desc").
 * Functions with words NULL destroy a handle; the message does not mention them. */
static const struct Question {
    const char *name;
    const char *words;
    bool has_kind;
} questions[] = {
    {"handle_is", "is a live", true},
    {"object_is", "is a live", true},
    {"tdt_is", "is a live", true},
    {"handle_kill", NULL, false},
    {"object_end", NULL, false},
    {"tdt_destroy", "is a live object", false},
    {"device_exists", "is a device that exists", false},
    {"kind_valid", "is an aclrtMemcpyKind", false},
    {"memory_on_device", "is memory of a device", false},
    {"access_known", "is a known kind of access", false},
    {"type_is_real", "is a type of real numbers", false},
};

/* Skips a cast: "(unsigned)mode" becomes "mode". The cast is of no use to the reader of the message. */
static const char *cast_skip(const char *part)
{
    static const char *const casts[] = {"(unsigned)", "(int)", "(size_t)", "(uint32_t)"};
    for (size_t i = 0; i < sizeof casts / sizeof casts[0]; i++) {
        size_t length = strlen(casts[i]);
        if (strncmp(part, casts[i], length) == 0) {
            return part + length;
        }
    }
    return part;
}

/* True if the text is a name, or a path such as config->path. */
static bool part_is_name(const char *part, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)part[i]) && strchr("_->.[]", part[i]) == NULL) {
            return false;
        }
    }
    return length > 0;
}

/* Returns the length of the text before `ending`; 0 if the text does not end with `ending`. */
static size_t length_before(const char *text, const char *ending)
{
    size_t length = strlen(text), end = strlen(ending);
    return length > end && strcmp(text + length - end, ending) == 0 ? length - end : 0;
}

/* True for a name alone, which is a pointer, and for "name != NULL". The comparison has the type int, so
 * CONDITION has added " != 0" to it. */
bool condition_is_pointer(const char *condition)
{
    size_t compared = length_before(condition, " != NULL != 0");
    return part_is_name(condition, compared > 0 ? compared : strlen(condition));
}

static void kind_add(Text *text, const char *kind, size_t length)
{
    const char *end = kind + length;
    const char *word = memchr(kind, '_', length);
    text_add(text, " ");
    for (word = word == NULL ? kind : word + 1; word < end; word++) {
        text_add(text, "%c", *word == '_' ? ' ' : tolower((unsigned char)*word));
    }
}

/* Appends a call such as "handle_is(desc, HANDLE_TENSOR_DESC)" in words; false if the called function is not in the
 * table `questions`. */
static bool question_add(Text *text, const char *part, size_t length)
{
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        const struct Question *question = &questions[i];
        size_t head = strlen(question->name);
        if (length < head + 2 || strncmp(part, question->name, head) != 0 || part[head] != '(') {
            continue;
        }
        const char *argument = part + head + 1, *end = part + length - 1;
        const char *comma = memchr(argument, ',', (size_t)(end - argument));
        const char *stop = question->has_kind && comma != NULL ? comma : end;
        while (*argument == '(' && stop[-1] == ')') {
            argument++;
            stop--;
        }
        text_add(text, "%.*s %s", (int)(stop - argument), argument, question->words);
        if (question->has_kind && comma != NULL) {
            kind_add(text, comma + 2, (size_t)(end - comma - 2));
        }
        return true;
    }
    return false;
}

/* True if the part is a call that destroys a handle and has no words. */
static bool part_is_silent(const char *part, size_t length)
{
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        size_t head = strlen(questions[i].name);
        if (questions[i].words == NULL && length > head && part[head] == '(' &&
            strncmp(part, questions[i].name, head) == 0) {
            return true;
        }
    }
    return false;
}

static bool ends_with(const char *part, size_t length, const char *tail)
{
    size_t size = strlen(tail);
    return length > size && strncmp(part + length - size, tail, size) == 0;
}

/* Appends one part of a condition in words. Parts are separated by && or ||. */
static void part_add(Text *text, const char *part, size_t length)
{
    static const char *const nothing = " == NULL", *const something = " != NULL";
    const char *begin = cast_skip(part);
    length -= (size_t)(begin - part);
    if (question_add(text, begin, length)) {
        return;
    }
    if (part_is_name(begin, length)) {
        text_add(text, "%.*s is not NULL", (int)length, begin);
    } else if (ends_with(begin, length, something)) {
        text_add(text, "%.*s is not NULL", (int)(length - strlen(something)), begin);
    } else if (ends_with(begin, length, nothing)) {
        text_add(text, "%.*s is NULL", (int)(length - strlen(nothing)), begin);
    } else {
        text_add(text, "%.*s", (int)length, begin);
    }
}

/* Returns the position of the next && or || outside brackets, or the end. */
static const char *part_end(const char *at)
{
    int depth = 0;
    for (; *at != '\0'; at++) {
        depth += (*at == '(') - (*at == ')');
        if (depth == 0 && at[0] == ' ' && (strncmp(at, " && ", 4) == 0 ||
                                           strncmp(at, " || ", 4) == 0)) {
            return at;
        }
    }
    return at;
}

void condition_words(const char *condition, char *text, size_t room)
{
    /* CONDITION adds " != 0" to each condition that is not a pointer. It is removed here, except
     * after a name alone, which is the name of a number. */
    static const char number[] = " != 0";
    size_t whole = strlen(condition), tail = sizeof number - 1;
    Text out = {text, room};
    char copy[512];
    if (ends_with(condition, whole, number) && !part_is_name(condition, whole - tail)) {
        whole -= tail;
    }
    snprintf(copy, sizeof copy, "%.*s", (int)whole, condition);
    text[0] = '\0';
    const char *between = "";
    for (const char *part = copy; *part != '\0';) {
        const char *end = part_end(part);
        if (!part_is_silent(part, (size_t)(end - part))) {
            text_add(&out, "%s", between);
            part_add(&out, part, (size_t)(end - part));
        }
        between = strncmp(end, " || ", 4) == 0 ? " or " : " and ";
        part = *end == '\0' ? end : end + 4;
    }
}

void arguments_words(const char *names, va_list values, bool done, char *text, size_t room)
{
    Text out = {text, room};
    text[0] = '\0';
    while (*names != '\0') {
        size_t length = strcspn(names, ":");
        text_add(&out, "%.*s=", (int)length, names);
        char sort = names[length + 1];
        bool is_pointer = sort == 'p' || sort == 'o';
        const void *pointer = is_pointer ? va_arg(values, const void *) : NULL;
        if (sort == 'o' && done && pointer != NULL) {
            text_add(&out, "->%p", *(void *const *)pointer);
        } else if (is_pointer && pointer != NULL) {
            text_add(&out, "%p", pointer);
        } else if (is_pointer) {
            text_add(&out, "NULL");
        } else if (sort == 'd') {
            text_add(&out, "%g", va_arg(values, double));
        } else if (sort == 'i') {
            text_add(&out, "%lld", (long long)va_arg(values, int64_t));
        } else {
            text_add(&out, "%llu", (unsigned long long)va_arg(values, uint64_t));
        }
        names += length + 2;
        names += *names == ' ';
        text_add(&out, "%s", *names == '\0' ? "" : ", ");
    }
}
