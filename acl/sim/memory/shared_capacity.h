/* Other processes that use the same devices: what they hold counts against the capacity.
 *
 * By default each process has the simulated devices for itself.  Processes whose ACL_SIM_SHARED names
 * the same file share their capacity, as on a machine: each counts its bytes in a slot of that file.
 * Only amounts are shared, not memory.  The slot of a process that has died counts no more.
 *
 * Thread rule: any thread; atomics only. */
#ifndef SIM_SHARED_CAPACITY_H
#define SIM_SHARED_CAPACITY_H

#include "base/core.h"

/* Counts bytes of ours; false, and they are not counted, if all together would pass `limit`. */
bool neighbours_take(int32_t device, size_t bytes, size_t limit);
void neighbours_give(int32_t device, size_t bytes);
/* What the other processes hold. */
size_t neighbours_bytes(int32_t device);

#endif
