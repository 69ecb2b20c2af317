/* Shared capacity: the memory that other processes hold is subtracted from the devices' capacity.
 *
 * By default each process has simulated devices of its own. Processes whose ACL_SIM_SHARED names
 * one file share the capacity of the devices, as processes on one machine do: each process counts
 * its bytes in a slot of that file. Only these numbers are shared, not memory. The slot of a process
 * that has died is ignored.
 *
 * Thread rule: any thread; atomics only. */
#ifndef SIM_SHARED_CAPACITY_H
#define SIM_SHARED_CAPACITY_H

#include "base/core.h"

/* Adds `bytes` to the count of this process; false, and nothing is added, if the sum over all
 * processes would exceed `limit`. */
bool neighbours_take(int32_t device, size_t bytes, size_t limit);
void neighbours_give(int32_t device, size_t bytes);
/* Returns how many bytes of the device the other processes hold; 0 if capacity is not shared. */
size_t neighbours_bytes(int32_t device);

#endif
