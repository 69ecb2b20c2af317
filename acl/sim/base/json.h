/* Just enough JSON to read a configuration file. */
#ifndef SIM_JSON_H
#define SIM_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* True if `text` is one JSON value and nothing else. */
bool json_is_valid(const char *text);
typedef enum JsonSort { JSON_ABSENT, JSON_STRING, JSON_BARE } JsonSort;
/* The scalar at `path` ("outer", "inner", NULL), as text without quotes, and whether it stands in
 * them.  Also absent if the text is not JSON, or if the value is not a scalar or does not fit. */
JsonSort json_find(const char *text, const char *const *path, char *out, size_t size);

#endif
