/* Sharing device memory of the malloc family with other processes, by key. */
#ifndef SIM_IPC_H
#define SIM_IPC_H

#include "memory/memory.h"

/* Called when the program frees an exported block, which is held: ends its keys. True if the caller can
 * free the block now. False if importers still have it: this file frees it when they are done. */
bool ipc_block_freed(Arena *arena, uintptr_t address, const ZoneView *view);

/* Frees blocks that the program freed before, and whose importers are done or have died. */
void ipc_collect(void);

#endif
