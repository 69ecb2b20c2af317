/* parallel.c: see parallel.h. */
#include "numbers/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

typedef struct Crew {
    void (*body)(void *context, int64_t index);
    void *context;
    int64_t count;
    _Atomic int64_t next;
} Crew;

static void *crew_work(void *argument)
{
    Crew *crew = argument;
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&crew->next, 1, memory_order_relaxed);
        if (index >= crew->count) {
            return NULL;
        }
        crew->body(crew->context, index);
    }
}

/* Makes threads for each call. That takes tens of microseconds, little compared with milliseconds
   of work, and no thread remains that a fork or an exit would have to handle. */
void parallel_for(unsigned threads, int64_t count, void (*body)(void *context, int64_t index),
    void *context)
{
    enum { THREADS_MAX = 64 };
    pthread_t ids[THREADS_MAX];
    unsigned started = 0;
    Crew crew = {.body = body, .context = context, .count = count};
    while (started + 1 < threads && started + 1 < count && started < THREADS_MAX) {
        if (pthread_create(&ids[started], NULL, crew_work, &crew) != 0) {
            break; /* the threads that were started do all of the work */
        }
        started++;
    }
    (void)crew_work(&crew);
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(ids[i], NULL);
    }
}
