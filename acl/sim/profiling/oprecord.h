/* oprecord.h: the record of one operator's run, as a program reads it from its pipe. */
#ifndef SIM_OPRECORD_H
#define SIM_OPRECORD_H

#include "profiling/subscription.h"

/* Opaque to programs: they know its size and ask aclprofGetOp... for what is in it. */
typedef struct OpRecord {
    uint32_t signature; /* of the fields below, to detect what is not a whole record */
    uint32_t model;
    uint32_t flag;
    uint32_t device;
    uint64_t number; /* of the run, for its names; from 1 */
    uint64_t begin_ns, end_ns;
    uint64_t unused[5];
} OpRecord;

_Static_assert(sizeof(OpRecord) == 80, "no padding: the signature covers all of it");

/* A record of the run, whose names are kept until they are asked for, or until many others came. */
void oprecord_make(const OpRun *run, OpRecord *record);

#endif
