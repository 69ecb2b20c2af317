/* The part of JSON that configuration files and reports need: checking a text, finding one scalar
 * in it, and writing a string.
 *
 * A recursive-descent parser that copies nothing; the nesting depth is limited. Escapes in keys
 * are not decoded.
 *
 * Thread rule: no state. */
#include "base/json.h"

#include <string.h>

enum { DEPTH_MAX = 64 };

typedef struct Reader {
    const char *at;
    const char *const *path; /* points to the key to find at this depth; NULL: no key is to be found here */
    const char *found;       /* start of the scalar that was found */
    size_t length;
    int depth;
} Reader;

static bool value_read(Reader *reader);

static void space_skip(Reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

static bool char_take(Reader *reader, char expected)
{
    space_skip(reader);
    if (*reader->at != expected) {
        return false;
    }
    reader->at++;
    return true;
}

static bool string_read(Reader *reader, const char **start, size_t *length)
{
    if (!char_take(reader, '"')) {
        return false;
    }
    *start = reader->at;
    while (*reader->at != '"') {
        if ((unsigned char)*reader->at < ' ') {
            return false;
        }
        reader->at += *reader->at == '\\' && reader->at[1] != '\0' ? 2 : 1;
    }
    *length = (size_t)(reader->at - *start);
    reader->at++;
    return true;
}

static bool digits_read(Reader *reader)
{
    size_t count = strspn(reader->at, "0123456789");
    reader->at += count;
    return count != 0;
}

static bool number_read(Reader *reader)
{
    reader->at += *reader->at == '-';
    bool zero = *reader->at == '0';
    const char *first = reader->at;
    if (!digits_read(reader) || (zero && reader->at - first > 1)) {
        return false;
    }
    if (*reader->at == '.') {
        reader->at++;
        if (!digits_read(reader)) {
            return false;
        }
    }
    if (*reader->at == 'e' || *reader->at == 'E') {
        reader->at++;
        reader->at += *reader->at == '+' || *reader->at == '-';
        return digits_read(reader);
    }
    return true;
}

static bool word_read(Reader *reader)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i]);
        if (strncmp(reader->at, words[i], length) == 0) {
            reader->at += length;
            return true;
        }
    }
    return false;
}

static bool member_read(Reader *reader, const char *const *path)
{
    const char *key;
    size_t length;
    if (!string_read(reader, &key, &length) || !char_take(reader, ':')) {
        return false;
    }
    bool wanted = path != NULL && *path != NULL && strlen(*path) == length
                  && memcmp(*path, key, length) == 0;
    reader->path = wanted ? path + 1 : NULL;
    return value_read(reader);
}

static bool object_read(Reader *reader)
{
    const char *const *path = reader->path;
    reader->at++;
    if (char_take(reader, '}')) {
        return true;
    }
    do {
        if (!member_read(reader, path)) {
            return false;
        }
    } while (char_take(reader, ','));
    return char_take(reader, '}');
}

static bool array_read(Reader *reader)
{
    reader->at++;
    if (char_take(reader, ']')) {
        return true;
    }
    do {
        reader->path = NULL;
        if (!value_read(reader)) {
            return false;
        }
    } while (char_take(reader, ','));
    return char_take(reader, ']');
}

static bool scalar_read(Reader *reader)
{
    const char *const *path = reader->path;
    const char *start = reader->at;
    size_t length;
    bool ok;
    if (*start == '"') {
        ok = string_read(reader, &start, &length);
    } else {
        ok = *start == '-' || (*start >= '0' && *start <= '9') ? number_read(reader)
                                                               : word_read(reader);
        length = (size_t)(reader->at - start);
    }
    if (ok && path != NULL && *path == NULL) {
        reader->found = start;
        reader->length = length;
    }
    return ok;
}

static bool value_read(Reader *reader)
{
    bool ok;
    space_skip(reader);
    if (++reader->depth > DEPTH_MAX) {
        return false;
    }
    switch (*reader->at) {
    case '{':
        ok = object_read(reader);
        break;
    case '[':
        ok = array_read(reader);
        break;
    default:
        ok = scalar_read(reader);
        break;
    }
    reader->depth--;
    return ok;
}

static bool text_read(Reader *reader)
{
    if (!value_read(reader)) {
        return false;
    }
    space_skip(reader);
    return *reader->at == '\0';
}

bool json_is_valid(const char *text)
{
    Reader reader = {text, NULL, NULL, 0, 0};
    return text_read(&reader);
}

JsonSort json_find(const char *text, const char *const *path, char *out, size_t size)
{
    Reader reader = {text, path, NULL, 0, 0};
    if (!text_read(&reader) || reader.found == NULL || reader.length >= size) {
        return JSON_ABSENT;
    }
    memcpy(out, reader.found, reader.length);
    out[reader.length] = '\0';
    return reader.found > text && reader.found[-1] == '"' ? JSON_STRING : JSON_BARE;
}

void json_print(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else if (c < 0x20) {
            fprintf(file, "\\u%04x", c);
        } else {
            fputc(c, file);
        }
    }
    fputc('"', file);
}
