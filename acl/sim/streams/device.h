/* Devices, as the rooms see them. */
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include "base/core.h"

/* The device's default context, made (and the device opened) if need be; counts a reference. */
aclError device_retain(int32_t device, Context **context);
/* True if aclInit was called more often than undone (init.c). */
bool acl_initialised(void);
/* True if any device has a context. */
bool devices_in_use(void);
/* The device that threads without a context get, -1: none. */
void device_set_default(int32_t device);
int32_t device_get_default(void);
/* A context of any sort; `device` is checked. */
aclError context_new(int32_t device, bool is_default, Context **context);
/* Ends its streams and itself; false if another thread already did. */
bool context_end(Context *context);
/* What becomes of the device's memory at its last reset; memory/memory.c sets it as the library is
 * loaded. */
extern void (*device_memory_settle)(int32_t device);
/* How many contexts live on the device. */
size_t context_count(int32_t device);

#endif
