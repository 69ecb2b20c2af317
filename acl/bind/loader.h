/* Late binding: finds the ACL library, opens it at the first call, and fills the table of pointers.

   Every function here may be called from any thread, with or without the GIL, and touches no Python
   object.  Nothing is ever closed or unbound: code of the library may run until the process ends. */
#ifndef LATE_LOADER_H
#define LATE_LOADER_H

#include <stdbool.h>

/* Sets the caller's function pointers to stubs. When the library is opened they are set to its functions.  `warn`
   is called once, without locks, if `auto` takes the simulator. */
void late_start(void ***slots, void (*warn)(void));

/* Opens the library unless it is open.  Returns false if none could be opened; late_failure says why. */
bool late_open(void);

/* Opens the library, and returns true if it has the function.  If not, late_missing names the function in this
   thread. */
bool late_find(int function);

/* Returns the missing function that this thread called last, or NULL, and forgets it. */
const char *late_missing(void);

/* True if the library has the function of that name. False for names that the table of functions lacks. */
bool late_has(const char *name);

/* True if the pointer of that function is bound. Does not open the library. */
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
