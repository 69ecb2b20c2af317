/* refusal.h: system calls that the host's kernel refused, for the message about them. */
#ifndef SIM_REFUSAL_H
#define SIM_REFUSAL_H

#include "base/core.h"

/* Stores errno of a system call that was refused, for the message of refusal_tell (207005). */
void refusal_note(const char *call, size_t bytes);
aclError refusal_tell(const char *function, const char *purpose);
/* Makes a file in memory; -1 if the kernel refuses it, which is then noted. */
int file_in_memory(const char *name, size_t bytes);

#endif
