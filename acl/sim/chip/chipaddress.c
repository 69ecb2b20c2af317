/* chipaddress.c: addresses that the chip itself has, for kernels that are handed them.

   Where a context's arithmetic notes an overflow, and where the cores of a device wait for each
   other.  Nothing of the simulator uses either: the first always reads as "no overflow", and
   kernels that run on the host need no second.  Both are memory of the library, one piece for each
   device, so that a launch that passes them on works.

   Thread rule: any thread. */
#include "generated/exports.h"
#include "base/soc.h"

enum { PIECE = 512, ARCHITECTURE_WITH_SYNC = 2201 };

typedef struct Piece {
    _Alignas(PIECE) unsigned char bytes[PIECE];
} Piece;

static Piece overflow_notes[DEVICE_MAX];
static Piece sync_words[DEVICE_MAX];

aclError sim_aclrtCtxGetFloatOverflowAddr(void **overflowAddr)
{
    Context *context;
    REQUIRE(overflowAddr);
    TRY(context_require(&context));
    *overflowAddr = overflow_notes[context->device].bytes;
    return ACL_SUCCESS;
}

/* Chips whose matrix and vector cores are apart have it; the others answer 207000. */
aclError sim_aclrtGetHardwareSyncAddr(void **addr)
{
    Context *context;
    REQUIRE(addr);
    TRY(context_require(&context));
    if (soc_current()->architecture != ARCHITECTURE_WITH_SYNC) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s has no cores to synchronise",
            soc_current()->name);
    }
    *addr = sync_words[context->device].bytes;
    return ACL_SUCCESS;
}
