/* The part of JSON that configuration files and reports need. */
#ifndef SIM_JSON_H
#define SIM_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* True if `text` is exactly one JSON value. */
bool json_is_valid(const char *text);
typedef enum JsonSort { JSON_ABSENT, JSON_STRING, JSON_BARE } JsonSort;
/* Copies the scalar at `path` (the keys "outer", "inner", NULL) to `out`, without quotes. Returns
 * JSON_STRING if the scalar is quoted, JSON_BARE if not. Returns JSON_ABSENT if there is no such
 * scalar, if the text is not JSON, or if the scalar does not fit into `size` bytes. */
JsonSort json_find(const char *text, const char *const *path, char *out, size_t size);
/* Writes the text as a string of JSON, with its quotes. */
void json_print(FILE *file, const char *text);

#endif
