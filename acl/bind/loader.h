/* Late binding: finds the ACL library, opens it at the first call, and fills the table of pointers.

   Every function here may be called from any thread, with or without the GIL, and touches no Python
   object.  Nothing is ever closed or unbound: code of the library may run until the process ends. */
#ifndef LATE_LOADER_H
#define LATE_LOADER_H

#include <stdbool.h>

/* Where the caller keeps a pointer for each function: filled with stubs, and when the library is
   opened with what it has.  `warn` is called once, without locks, if `auto` ends at the simulator. */
void late_start(void ***slots, void (*warn)(void));

/* Opens the library unless it is open.  False if none could be opened: `late_failure` says why. */
bool late_open(void);

/* The same for one function: opens, and says whether the table has it.  If not, `late_missing`
   names it in this thread. */
bool late_find(int function);

/* The function that this thread last called in vain, or NULL; the question clears it. */
const char *late_missing(void);

/* Whether the library has the function of that name (false for names the table lacks). */
bool late_has(const char *name);

/* Whether the pointer of that function is bound; opens nothing. */
bool late_bound(int function);

/* "cann", "sim", or NULL before the library is open. */
const char *late_backend(void);

/* The path of the open library, or NULL. */
const char *late_path(void);

/* Why no library could be opened: one line for each place tried.  NULL if one is open. */
const char *late_failure(void);

/* The name of an error code, or NULL. */
const char *late_code_name(int code);

#endif
