/* allocator.h: how models and operators of the simulator find the user's allocator of a stream. */
#ifndef SIM_ALLOCATOR_H
#define SIM_ALLOCATOR_H

#include <stdbool.h>

#include "acl/acl.h"

/* The five pointers that a user registers.  Two allocators are the same if all five are equal. */
typedef struct Allocator {
    aclrtAllocator object;
    aclrtAllocatorAllocFunc alloc;
    aclrtAllocatorFreeFunc free;
    aclrtAllocatorAllocAdviseFunc advise;
    aclrtAllocatorGetAddrFromBlockFunc address;
} Allocator;

typedef struct Registration {
    aclrtAllocatorDesc descriptor; /* as it was when registered; perhaps destroyed since */
    Allocator allocator;
} Registration;

/* Copies the registration of that stream handle; false if there is none.  NULL has none. */
bool allocator_find(aclrtStream stream, Registration *registration);

#endif
