/* refusal.h: what the host's kernel refused, for the message that tells of it. */
#ifndef SIM_REFUSAL_H
#define SIM_REFUSAL_H

#include "base/core.h"

/* Remembers errno of a call that the kernel refused, for the message of refusal_tell (207005). */
void refusal_note(const char *call, size_t bytes);
aclError refusal_tell(const char *function, const char *purpose);
/* A file that lives in memory only; -1 if the kernel refuses it, which is noted. */
int file_in_memory(const char *name, size_t bytes);

#endif
