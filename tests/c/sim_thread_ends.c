/* A thread ends, and a destructor of its own makes calls that fail: their messages go to memory that
 * is still the thread's, not to what it had before. */
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { MESSAGES_BYTES = 8192 }; /* what a thread's messages take */

static pthread_key_t key; /* made after the simulator's own, so its destructor runs later */

static void at_end(void *given)
{
    unsigned char *mine = calloc(1, MESSAGES_BYTES);
    (void)given;
    CHECK(mine != NULL);
    GIVES(ACL_ERROR_INVALID_PARAM, aclrtFree(NULL));
    for (int i = 0; i < MESSAGES_BYTES; i++) {
        CHECK(mine[i] == 0);
    }
    CHECK(strstr(aclGetRecentErrMsg(), "aclrtFree") != NULL);
    free(mine);
}

static void *work(void *argument)
{
    GIVES(ACL_ERROR_INVALID_PARAM, aclrtFree(NULL));
    OK(pthread_setspecific(key, argument));
    return NULL;
}

int main(void)
{
    OK(pthread_key_create(&key, at_end));
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        OK(pthread_create(&thread, NULL, work, &key));
        OK(pthread_join(thread, NULL));
    }
    return 0;
}
