/* The part of JSON that configuration files and reports need. */
#ifndef SIM_JSON_H
#define SIM_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* True if `text` is exactly one JSON value. */
bool json_is_valid(const char *text);
typedef enum JsonSort { JSON_ABSENT, JSON_STRING, JSON_BARE } JsonSort;
/* Gives the scalar at `path` ("outer", "inner", NULL) as text without quotes; the result says
 * whether it is quoted, or absent. It counts as absent if the text is not JSON, if the value is
 * not a scalar, or if it does not fit. */
JsonSort json_find(const char *text, const char *const *path, char *out, size_t size);
/* Writes the text as a string of JSON, with its quotes. */
void json_print(FILE *file, const char *text);

#endif
