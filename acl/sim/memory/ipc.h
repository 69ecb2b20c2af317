/* Device memory of the malloc family for other processes, by key. */
#ifndef SIM_IPC_H
#define SIM_IPC_H

#include "memory/memory.h"

/* The held block that begins there is freed: its keys die.  True if it can be given back; false if
 * importers still have it, and it will be when they are done. */
bool ipc_block_freed(Arena *arena, uintptr_t address, const ZoneView *view);

/* Gives back what importers are done with, or died with. */
void ipc_collect(void);

#endif
