/* databuffer.h: what models and operators read in a user's aclDataBuffer. */
#ifndef SIM_DATABUFFER_H
#define SIM_DATABUFFER_H

#include "acl/acl.h"

struct aclDataBuffer {
    void *address;
    size_t size; /* bytes */
};

#endif
