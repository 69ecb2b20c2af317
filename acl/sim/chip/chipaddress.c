/* chipaddress.c: addresses of the chip's own memory, which programs pass to kernels.

   There are two addresses: at the first one arithmetic notes an overflow; the cores of a device use the
   second one to wait for each other.  The simulator uses neither: the first always reads as "no overflow",
   and kernels that run on the host do not need the second.  Both point to memory of the library, with one
   Piece for each device, so that a kernel may access them.

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

/* Only chips with separate matrix and vector cores have this address; the call returns 207000 for all other chips. */
aclError sim_aclrtGetHardwareSyncAddr(void **addr)
{
    Context *context;
    REQUIRE(addr);
    TRY(context_require(&context));
    if (soc_current()->architecture != ARCHITECTURE_WITH_SYNC) {
        return fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "%s has no addresses to synchronise cores",
            soc_current()->name);
    }
    *addr = sync_words[context->device].bytes;
    return ACL_SUCCESS;
}
