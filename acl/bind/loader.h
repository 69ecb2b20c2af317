/* Late binding: finds the ACL library, opens it at the first call, and fills the table of pointers.

   Every function here may be called from any thread, with or without the GIL, and uses no Python object.  The library
   is never closed and no pointer is reset, because code of the library may run until the process ends. */
#ifndef LATE_LOADER_H
#define LATE_LOADER_H

#include <stdbool.h>

/* Sets the caller's function pointers to stubs.  When the library is opened, they are set to its functions.  `warn` is
   called once, without locks, if ACL_BACKEND=auto chooses the simulator. */
void late_start(void ***slots, void (*warn)(void));

/* Opens the library if it is not open.  Returns false if none could be opened; late_failure says why. */
bool late_open(void);

/* Opens the library.  Returns true if it has the function.  If not, the next late_missing in this thread returns its
   name. */
bool late_find(int function);

/* Returns the name of the missing function that this thread called last, or NULL; a second call returns NULL. */
const char *late_missing(void);

/* Returns true if the library has the function of that name; false for names that are not in the table of functions. */
bool late_has(const char *name);

/* Opens the library.  Returns true if the pointer of that function is bound. */
bool late_bound(int function);

/* Returns "cann" or "sim", or NULL if no library is open. */
const char *late_backend(void);

/* Returns the path of the open library, or NULL. */
const char *late_path(void);

/* Returns why no library could be opened, with one line for each place tried; NULL if a library is open. */
const char *late_failure(void);

/* Returns the name of an error code, or NULL if it has none. */
const char *late_code_name(int code);

#endif
