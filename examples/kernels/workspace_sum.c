/* workspace_sum.c: out[0] = the sum of x, with two workspaces: PARTS partial sums, and the total.

   For Op.compiler: an operator's kernel gets the addresses of the inputs, the outputs and the
   workspaces, then the bytes that the compile function gave. It runs as one block, so all partial
   sums are complete when they are added up. */
#include "acl_sim_kernel.h"

enum { PARTS = 64 };

struct WorkspaceSum {
    const float *x;
    float *out;
    double *partial; /* PARTS partial sums */
    double *total;
    uint64_t count;
};

ACL_SIM_KERNEL(workspace_sum)
{
    const struct WorkspaceSum *p = args;
    for (uint32_t part = 0; part < PARTS; part++) {
        p->partial[part] = 0;
        for (uint64_t i = part; i < p->count; i += PARTS) {
            p->partial[part] += p->x[i];
        }
    }
    *p->total = 0;
    for (uint32_t part = 0; part < PARTS; part++) {
        *p->total += p->partial[part];
    }
    p->out[0] = (float)*p->total;
}
