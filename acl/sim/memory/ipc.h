/* Sharing device memory of the malloc family with other processes, by key. */
#ifndef SIM_IPC_H
#define SIM_IPC_H

#include "memory/memory.h"

/* Called when the held block at that address is freed: its keys are dead. True if it can be freed
 * now. False if importers still have it: it is freed when they are done. */
bool ipc_block_freed(Arena *arena, uintptr_t address, const ZoneView *view);

/* Frees blocks whose importers are done or have died. */
void ipc_collect(void);

#endif
