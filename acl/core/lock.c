/* The system calls of the biased lock: registration for membarrier, and the process-wide barrier. */
#define _GNU_SOURCE
#include "lock.h"

#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BIAS_UNKNOWN, BIAS_YES, BIAS_NO };

static int bias_state;

static long membarrier(int command) {
    return syscall(SYS_membarrier, command, 0, 0);
}

/* Returns BIAS_NO if the kernel has no membarrier, or if ACL_POOL_BIAS=0 is set, which is for tests and sandboxes. */
static int bias_ask(void) {
    const char *wish = getenv("ACL_POOL_BIAS");
    if (wish != NULL && wish[0] == '0') {
        return BIAS_NO;
    }
    return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 ? BIAS_YES : BIAS_NO;
}

bool lock_bias_available(void) {
    int state = __atomic_load_n(&bias_state, __ATOMIC_RELAXED);
    if (state == BIAS_UNKNOWN) {
        state = bias_ask();
        __atomic_store_n(&bias_state, state, __ATOMIC_RELAXED);
    }
    return state == BIAS_YES;
}

/* After a successful registration, membarrier fails only if a sandbox has forbidden it since.  Without the barrier a
   thread that revokes the bias cannot tell if the owner is in a section.  So the process must not continue. */
void lock_barrier(void) {
    if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0) {
        static const char TEXT[] =
            "acl: the system call membarrier, allowed when the pool was made, is refused now (a seccomp filter?). "
            "Allow it, install the filter before the first pool, or set ACL_POOL_BIAS=0.\n";
        (void)!write(STDERR_FILENO, TEXT, sizeof TEXT - 1);
        abort();
    }
}
