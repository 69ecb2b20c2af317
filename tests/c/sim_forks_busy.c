/* Children of a process whose other threads are inside the simulator at the moment of the fork: no
 * lock that such a thread held is held in the child. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 2, CHILDREN = 40, CHILD_SECONDS = 60 };
static atomic_bool over;

static void ask(void)
{
    int32_t active;
    OK(aclrtGetPrimaryCtxState(0, NULL, &active));
}

static void *ask_on(void *argument)
{
    while (!atomic_load(&over)) {
        ask();
    }
    return argument;
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    return 0; /* ThreadSanitizer's own locks are not made for such forks */
#endif
    pthread_t threads[THREADS];
    OK(aclInit(NULL));
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, ask_on, NULL) == 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(CHILD_SECONDS); /* ends a child that hangs */
            ask();
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(aclFinalize());
    return 0;
}
