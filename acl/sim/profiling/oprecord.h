/* oprecord.h: the record of one operator's run, as a program reads it from its pipe. */
#ifndef SIM_OPRECORD_H
#define SIM_OPRECORD_H

#include "profiling/subscription.h"

/* Programs use only the size of a record; they read its fields with aclprofGetOp... */
typedef struct OpRecord {
    uint32_t signature; /* hash of the fields below; wrong if the bytes are not a record */
    uint32_t model;
    uint32_t flag;
    uint32_t device;
    uint64_t number; /* identifies the run and its names; from 1 */
    uint64_t begin_ns, end_ns;
    uint64_t unused[5];
} OpRecord;

_Static_assert(sizeof(OpRecord) == 80, "no padding: the signature covers all of it");

/* Makes the record of a run. The names of the operator and of its type are kept here until the program fetches them, or
   until NAMES_KEPT (oprecord.c) newer records were made. */
void oprecord_make(const OpRun *run, OpRecord *record);

#endif
