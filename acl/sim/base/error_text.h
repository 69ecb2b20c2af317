/* error_text.h: writes conditions and the arguments of calls as text for messages. */
#ifndef SIM_ERROR_TEXT_H
#define SIM_ERROR_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Writes a condition of the sources ("handle_is(desc, HANDLE_TENSOR_DESC)", "devPtr", "size > 0")
 * as a user reads it: "desc is a live tensor desc", "devPtr is not NULL", "size > 0". */
void condition_words(const char *condition, char *text, size_t room);

/* True if the condition is only that a pointer is not NULL: "devPtr", "config->path", "stream
 * != NULL". */
bool condition_is_pointer(const char *condition);

/* Writes the arguments as "devPtr=NULL, size=16", from names such as "devPtr:p size:u" and their
 * values: p is a pointer, u an unsigned and i a signed 64-bit number, d a double. o is an address at
 * which the call stores a pointer or handle; if `done` (the call succeeded), the stored value is written. */
void arguments_words(const char *names, va_list values, bool done, char *text, size_t room);

#endif
