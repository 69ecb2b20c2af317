/* The arena's lock (acl/core/lock.h): critical sections exclude each other while the lock's owner changes.
 *
 * Everything in a section is plain memory, so ThreadSanitizer sees each access that the lock fails to
 * order.  ThreadSanitizer cannot model the process-wide barrier, so under it no lock is biased, and only the
 * spin lock behind the fast path is tested.  Without it the bias is tested too: an owner that enters by two
 * plain stores while another thread revokes, an ownership that moves among all threads, and an owner
 * that is stopped at the worst moment (LOCK_LOOKED). */
#undef _GNU_SOURCE
__attribute__((unused)) static void looked(void); /* unused under ThreadSanitizer: no bias, so no owner */
#define LOCK_LOOKED() looked()
#include "../../acl/core/lock.c"

#include <pthread.h>

#include "check.h"

enum { WORDS = 8, THREADS = 4, OWNER_SECTIONS = 400000, REVOCATIONS = 3000, TURNS = 30000, BURST = 40 };

enum { STEP_LOOKED = 1, STEP_GO, STEP_TRIED, STEP_LEAVE };

static BiasedLock lock;
static __thread bool stops; /* this thread waits at LOCK_LOOKED */
static uint32_t step;
__attribute__((unused)) static bool entered;
static uint64_t words[WORDS]; /* equal outside sections; written only inside */
static bool stop;

static void step_wait(uint32_t until)
{
    while (__atomic_load_n(&step, __ATOMIC_ACQUIRE) < until) {
        sched_yield();
    }
}

static void step_set(uint32_t to)
{
    __atomic_store_n(&step, to, __ATOMIC_RELEASE);
}

static void looked(void)
{
    if (stops) {
        step_set(STEP_LOOKED);
        step_wait(STEP_GO);
    }
}

static void section(void)
{
    uint64_t first = words[0];
    for (int i = 0; i < WORDS; i++) {
        CHECK(words[i] == first);
        words[i] = first + 1;
    }
}

static void world_start(void)
{
    lock_start(&lock);
    for (int i = 0; i < WORDS; i++) {
        words[i] = 0;
    }
    __atomic_store_n(&stop, false, __ATOMIC_RELAXED);
}

/* Runs a section as alloc_fast does: by the bias if this thread is the owner, else by lock_enter, which may make it the
   owner. */
static void section_take(void)
{
    if (lock_enter_biased(&lock)) {
        section();
        lock_leave_biased(&lock);
        return;
    }
    lock_take(&lock);
    section();
    lock_drop(&lock);
}

static void *owner_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < OWNER_SECTIONS; i++) {
        section_take();
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    return NULL;
}

static void *revoker_run(void *argument)
{
    uint64_t *sections = argument;
    while (*sections < REVOCATIONS && !__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        lock_enter(&lock);
        section();
        lock_leave(&lock);
        ++*sections;
        if (*sections % 4 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static void owner_and_revoker(void *(*run)(void *))
{
    pthread_t owner, revoker;
    uint64_t sections = 0;
    world_start();
    CHECK(pthread_create(&owner, NULL, run, NULL) == 0);
    CHECK(pthread_create(&revoker, NULL, revoker_run, &sections) == 0);
    CHECK(pthread_join(owner, NULL) == 0);
    CHECK(pthread_join(revoker, NULL) == 0);
    CHECK(words[0] == OWNER_SECTIONS + sections);
}

static void test_an_owner_and_a_revoker_exclude_each_other(void)
{
    owner_and_revoker(owner_run);
}

static void *turn_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < TURNS; i++) {
        section_take();
        if (i % BURST == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static void test_ownership_moves_among_threads(void)
{
    pthread_t threads[THREADS];
    world_start();
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, turn_run, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(words[0] == (uint64_t)THREADS * TURNS);
}

static void test_a_thread_alone_becomes_the_owner(void)
{
    world_start();
    for (int i = 0; i < 2 * LOCK_FIRST_STREAK; i++) {
        section_take();
    }
#ifndef LOCK_NO_BIAS
    bool owned = lock_enter_biased(&lock);
    CHECK(owned == lock_bias_available());
    if (owned) {
        lock_leave_biased(&lock);
    }
#endif
    lock.pinned = 1;
    lock_enter(&lock);
    lock_leave(&lock);
    for (int i = 0; i < 4 * LOCK_FIRST_STREAK; i++) {
        lock_enter(&lock);
        lock_leave(&lock);
    }
    CHECK(!lock_enter_biased(&lock)); /* a pinned lock has no owner */
}

static int may_own_now;

static int may_own(void)
{
    return may_own_now;
}

static void test_who_steps_down_is_no_owner_until_it_may(void)
{
    world_start();
    lock.may_own = may_own;
    may_own_now = 1;
    for (int i = 0; i < 2 * LOCK_FIRST_STREAK; i++) {
        section_take();
    }
    may_own_now = 0;
    lock_step_down(&lock);
    for (int i = 0; i < 8 * LOCK_FIRST_STREAK; i++) {
        CHECK(!lock_enter_biased(&lock));
        section_take();
    }
    CHECK(lock.revocations == 0);
    may_own_now = 1;
    for (int i = 0; i < 2 * LOCK_FIRST_STREAK; i++) {
        section_take();
    }
    lock_step_down(&lock); /* if the thread enters no section, it becomes the owner again at once */
    section_take();
#ifndef LOCK_NO_BIAS
    bool owned = lock_enter_biased(&lock);
    CHECK(owned == lock_bias_available());
    if (owned) {
        lock_leave_biased(&lock);
    }
#endif
}

/* Gives up the ownership every 64 sections; while this thread may not own the lock, it takes it like other threads. */
static void *stepper_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < OWNER_SECTIONS; i++) {
        if (i % 64 == 0) {
            lock_step_down(&lock);
        }
        section_take();
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    return NULL;
}

static void test_an_owner_that_steps_down_and_a_revoker_exclude_each_other(void)
{
    owner_and_revoker(stepper_run);
}

#ifndef LOCK_NO_BIAS
/* Becomes the owner, then tries to enter and is stopped half-way. */
static void *stopped_run(void *argument)
{
    (void)argument;
    for (int i = 0; i < 2 * LOCK_FIRST_STREAK; i++) {
        section_take();
    }
    stops = true;
    entered = lock_enter_biased(&lock);
    step_set(STEP_TRIED);
    step_wait(STEP_LEAVE);
    return NULL;
}

static pthread_t stopped_start(void)
{
    pthread_t thread;
    world_start();
    entered = false;
    step_set(0);
    CHECK(pthread_create(&thread, NULL, stopped_run, NULL) == 0);
    step_wait(STEP_LOOKED);
    return thread;
}

static void stopped_end(pthread_t thread)
{
    step_set(STEP_LEAVE);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void test_an_owner_that_wakes_up_revoked_stays_out(void)
{
    pthread_t thread = stopped_start();
    lock_enter(&lock); /* revokes at once: no thread is inside */
    step_set(STEP_GO);
    step_wait(STEP_TRIED);
    CHECK(!entered);
    lock_leave(&lock);
    stopped_end(thread);
}

static void test_an_owner_that_wakes_up_leaves_its_heirs_word_alone(void)
{
    pthread_t thread = stopped_start();
    for (int i = 0; !lock_enter_biased(&lock); i++) { /* until we are the owner, and inside */
        CHECK(i < 4 * LOCK_FIRST_STREAK);
        lock_enter(&lock);
        lock_leave(&lock);
    }
    step_set(STEP_GO);
    step_wait(STEP_TRIED);
    CHECK(!entered);
    CHECK(lock.seat->busy == 1);
    lock_leave_biased(&lock);
    stopped_end(thread);
}
#endif

int main(void)
{
#ifndef LOCK_NO_BIAS
    if (lock_bias_available()) {
        test_an_owner_that_wakes_up_revoked_stays_out();
        test_an_owner_that_wakes_up_leaves_its_heirs_word_alone();
    }
#endif
    test_a_thread_alone_becomes_the_owner();
    test_an_owner_and_a_revoker_exclude_each_other();
    test_who_steps_down_is_no_owner_until_it_may();
    test_an_owner_that_steps_down_and_a_revoker_exclude_each_other();
    test_ownership_moves_among_threads();
    return 0;
}
