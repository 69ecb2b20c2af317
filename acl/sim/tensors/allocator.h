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
    aclrtAllocatorDesc descriptor; /* the user's descriptor, which may have been destroyed since */
    Allocator allocator;
} Registration;

/* Copies the registration of a stream handle.  Returns false if there is none; NULL never has one. */
bool allocator_find(aclrtStream stream, Registration *registration);

#endif
