/* A thread ends, and a destructor of the program makes calls that fail: their messages are written to memory that
 * the thread still owns, not to memory that was freed. */
#include <pthread.h>
#include <string.h>

#include "check.h"

enum { MESSAGES_BYTES = 8192 }; /* size of a thread's messages */

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
