/* refusal.h: system calls that the host's kernel refused, for the message about them. */
#ifndef SIM_REFUSAL_H
#define SIM_REFUSAL_H

#include "base/core.h"

/* Stores which system call was refused, for how many bytes, and its errno, for the message of refusal_tell. */
void refusal_note(const char *call, size_t bytes);
aclError refusal_tell(const char *function, const char *purpose);
/* Makes a file in memory and returns its descriptor; -1 if the kernel refuses it (after refusal_note). */
int file_in_memory(const char *name, size_t bytes);

#endif
