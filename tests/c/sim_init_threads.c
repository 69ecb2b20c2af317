/* Threads that initialise ACL at the same time: one of them does it, and the callbacks run once; the others
 * return when it is done, with the code for a repeated initialisation. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 6 };

static pthread_barrier_t start;
static atomic_int begun, done, first, repeated;

static aclError at_init(const char *text, size_t size, void *data)
{
    (void)text;
    (void)size;
    (void)data;
    atomic_fetch_add(&begun, 1);
    GIVES(ACL_ERROR_REPEAT_INITIALIZE, aclInit(NULL));
    usleep(20000);
    atomic_fetch_add(&done, 1);
    return ACL_SUCCESS;
}

static void *work(void *argument)
{
    (void)argument;
    pthread_barrier_wait(&start);
    aclError status = aclInit(NULL);
    CHECK(atomic_load(&done) == 1);
    atomic_fetch_add(status == ACL_SUCCESS ? &first : &repeated, 1);
    CHECK(status == ACL_SUCCESS || status == ACL_ERROR_REPEAT_INITIALIZE);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    uint64_t count = 0;
    OK(pthread_barrier_init(&start, NULL, THREADS));
    OK(aclInitCallbackRegister(ACL_REG_TYPE_ACL_MODEL, at_init, NULL));
    for (int i = 0; i < THREADS; i++) {
        OK(pthread_create(&threads[i], NULL, work, NULL));
    }
    for (int i = 0; i < THREADS; i++) {
        OK(pthread_join(threads[i], NULL));
    }
    CHECK(atomic_load(&begun) == 1 && atomic_load(&first) == 1);
    CHECK(atomic_load(&repeated) == THREADS - 1);
    OK(aclFinalizeReference(&count));
    CHECK(count == THREADS - 1);
    return 0;
}
