/* Sharing device memory of the malloc family with other processes, by key. */
#ifndef SIM_IPC_H
#define SIM_IPC_H

#include "memory/memory.h"

/* Called when the program frees an exported block; the caller holds the block (arena_hold). Ends the keys
 * of the block. True if the caller can free it now. False if importers still use it: ipc.c frees it when
 * they are done. */
bool ipc_block_freed(Arena *arena, uintptr_t address, const ZoneView *view);

/* Frees blocks that the program freed before, and whose importers are done or have died. */
void ipc_collect(void);

#endif
