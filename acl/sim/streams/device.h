/* Devices: the interface for other folders of the simulator. */
#ifndef SIM_DEVICE_H
#define SIM_DEVICE_H

#include "base/core.h"

/* Gives the device's default context with one more reference. Opens the device and makes the
 * context if needed. */
aclError device_retain(int32_t device, Context **context);
/* True if aclInit succeeded more often than aclFinalize (init.c). */
bool acl_initialised(void);
/* True if any device has a context. */
bool devices_in_use(void);
/* Sets the device of threads that have chosen none; -1: no device. */
void device_set_default(int32_t device);
int32_t device_get_default(void);
/* Makes a default or other context; the caller has checked `device`. */
aclError context_new(int32_t device, bool is_default, Context **context);
/* Ends the context and its streams; false if another thread did so before. */
bool context_end(Context *context);
/* Called at the last reset of a device: returns its free pages to the system. memory/memory.c sets
 * this pointer when the library is loaded. */
extern void (*device_memory_settle)(int32_t device);
/* Returns the number of live contexts of the device. */
size_t context_count(int32_t device);

#endif
