/* Other processes that use the same devices: what they hold counts against the capacity.
 *
 * By default each process has simulated devices of its own. Processes whose ACL_SIM_SHARED names
 * the same file share their capacity, as on a machine: each counts its bytes in a slot of that
 * file. Only amounts are shared, not memory. The slot of a process that has died is ignored.
 *
 * Thread rule: any thread; atomics only. */
#ifndef SIM_SHARED_CAPACITY_H
#define SIM_SHARED_CAPACITY_H

#include "base/core.h"

/* Adds bytes of this process; false, and nothing is added, if the sum of all processes would
 * exceed `limit`. */
bool neighbours_take(int32_t device, size_t bytes, size_t limit);
void neighbours_give(int32_t device, size_t bytes);
/* Returns the bytes that the other processes hold. */
size_t neighbours_bytes(int32_t device);

#endif
