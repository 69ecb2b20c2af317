/* Events of all sorts: what the queries return, waits, resets, times, destroying while pending. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

static atomic_int go;
static aclrtStream stream, other;

static void hold(void *argument)
{
    (void)argument;
    while (!atomic_load(&go)) {
        usleep(100);
    }
}

static void stream_hold(void)
{
    atomic_store(&go, 0);
    OK(aclrtLaunchHostFunc(stream, hold, NULL));
}

static void queries_disagree(void)
{
    aclrtEvent event;
    aclrtEventRecordedStatus recorded;
    aclrtEventStatus status;
    aclrtEventWaitStatus waited;
    OK(aclrtCreateEvent(&event));
    OK(aclrtQueryEventStatus(event, &recorded));
    CHECK(recorded == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    OK(aclrtQueryEvent(event, &status));
    CHECK(status == ACL_EVENT_STATUS_COMPLETE);
    stream_hold();
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtStreamWaitEvent(other, event));
    OK(aclrtQueryEventStatus(event, &recorded));
    CHECK(recorded == ACL_EVENT_RECORDED_STATUS_NOT_READY);
    OK(aclrtQueryEvent(event, &status));
    CHECK(status == ACL_EVENT_STATUS_NOT_READY);
    OK(aclrtQueryEventWaitStatus(event, &waited));
    CHECK(waited == ACL_EVENT_WAIT_STATUS_NOT_READY);
    GIVES(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, aclrtSynchronizeEventWithTimeout(event, 10));
    atomic_store(&go, 1);
    OK(aclrtSynchronizeEvent(event));
    OK(aclrtSynchronizeStream(other));
    OK(aclrtQueryEventStatus(event, &recorded));
    CHECK(recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE);
    OK(aclrtQueryEventWaitStatus(event, &waited));
    CHECK(waited == ACL_EVENT_WAIT_STATUS_COMPLETE);
    OK(aclrtDestroyEvent(event));
    GIVES(ACL_ERROR_RT_INVALID_HANDLE, aclrtDestroyEvent(event));
}

/* A wait for an event with a flag waits for a later record if the flag is not set; a reset clears the flag. */
static void flagged_event_waits_for_a_flag(void)
{
    aclrtEvent event;
    OK(aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC));
    OK(aclrtStreamWaitEvent(other, event));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(other, 20));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtSynchronizeStreamWithTimeout(other, 5000));
    OK(aclrtResetEvent(event, other));
    OK(aclrtStreamWaitEvent(other, event));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(other, 20));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtSynchronizeStreamWithTimeout(other, 5000));
    OK(aclrtDestroyEvent(event));
}

static void ex_event_waits_for_the_last_record_at_the_call(void)
{
    aclrtEvent event;
    aclrtEventStatus status;
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    OK(aclrtStreamWaitEvent(other, event));
    OK(aclrtSynchronizeStreamWithTimeout(other, 5000));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtStreamWaitEvent(other, event));
    stream_hold();
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtSynchronizeStreamWithTimeout(other, 5000));
    GIVES(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, aclrtQueryEvent(event, &status));
    GIVES(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, aclrtResetEvent(event, stream));
    atomic_store(&go, 1);
    OK(aclrtDestroyEvent(event));
    OK(aclrtSynchronizeStream(stream));
}

static atomic_int gate_passed, seen;

static void hold_and_pass(void *argument)
{
    hold(argument);
    atomic_store(&gate_passed, 1);
}

static void look(void *argument)
{
    (void)argument;
    atomic_store(&seen, atomic_load(&gate_passed));
}

static aclrtEvent event_of(int sort)
{
    aclrtEvent event;
    OK(sort == 0   ? aclrtCreateEvent(&event)
       : sort == 1 ? aclrtCreateEventWithFlag(&event, ACL_EVENT_SYNC)
                   : aclrtCreateEventExWithFlag(&event, sort == 2 ? ACL_EVENT_SYNC : ACL_EVENT_IPC));
    return event;
}

/* For every sort of event, a wait is for the last record at the call, even if a later record is complete earlier. */
static void a_wait_is_for_one_record(int sort)
{
    aclrtStream third;
    aclrtEvent event = event_of(sort);
    OK(aclrtCreateStream(&third));
    atomic_store(&gate_passed, 0);
    atomic_store(&go, 0);
    OK(aclrtLaunchHostFunc(stream, hold_and_pass, NULL));
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtStreamWaitEvent(other, event));
    OK(aclrtRecordEvent(event, third));
    OK(aclrtSynchronizeStream(third));
    OK(aclrtSynchronizeEvent(event));
    GIVES(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, aclrtSynchronizeStreamWithTimeout(other, 20));
    OK(aclrtLaunchHostFunc(other, look, NULL));
    atomic_store(&go, 1);
    OK(aclrtSynchronizeStream(other));
    CHECK(atomic_load(&seen) == 1);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyEvent(event));
    OK(aclrtDestroyStream(third));
}

static void a_record_thrown_away_leaves_nobody_waiting(int sort)
{
    aclrtEvent event = event_of(sort);
    stream_hold();
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtStreamWaitEvent(other, event));
    OK(aclrtStreamAbort(stream));
    atomic_store(&go, 1);
    OK(aclrtSynchronizeStreamWithTimeout(other, 60000));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyEvent(event));
}

static void a_wait_may_time_out(void)
{
    aclrtEvent event;
    OK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    stream_hold();
    OK(aclrtRecordEvent(event, stream));
    OK(aclrtStreamWaitEventWithTimeout(other, event, 20));
    GIVES(ACL_ERROR_RT_WAIT_TIMEOUT, aclrtSynchronizeStreamWithTimeout(other, 5000));
    OK(aclrtSynchronizeStream(other));
    atomic_store(&go, 1);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyEvent(event));
}

static void nap(void *argument)
{
    (void)argument;
    usleep(30000);
}

static void times_are_the_streams(void)
{
    aclrtEvent start, end;
    float ms = -1;
    OK(aclrtCreateEventWithFlag(&start, ACL_EVENT_TIME_LINE));
    OK(aclrtCreateEventWithFlag(&end, ACL_EVENT_TIME_LINE));
    GIVES(ACL_ERROR_RT_INTERNAL_ERROR, aclrtEventElapsedTime(&ms, start, end));
    OK(aclrtRecordEvent(start, stream));
    OK(aclrtLaunchHostFunc(stream, nap, NULL));
    OK(aclrtRecordEvent(end, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtEventElapsedTime(&ms, start, end));
    CHECK(ms >= 30.0f && ms < 30000.0f);
    OK(aclrtDestroyEvent(start));
    OK(aclrtDestroyEvent(end));
}

static aclrtEvent shared_event;
static atomic_int stop;

static void *poll_event(void *argument)
{
    aclrtEventRecordedStatus status;
    (void)argument;
    while (!atomic_load(&stop)) {
        OK(aclrtQueryEventStatus(shared_event, &status));
        OK(aclrtSynchronizeEvent(shared_event));
    }
    return NULL;
}

static void recording_while_others_poll(void)
{
    pthread_t threads[2];
    OK(aclrtCreateEventExWithFlag(&shared_event, ACL_EVENT_SYNC));
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, poll_event, NULL) == 0);
    }
    for (int i = 0; i < 2000; i++) {
        OK(aclrtRecordEvent(shared_event, i % 2 ? stream : other));
        OK(aclrtStreamWaitEvent(i % 2 ? other : stream, shared_event));
    }
    OK(aclrtSynchronizeDevice());
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    OK(aclrtDestroyEvent(shared_event));
}

int main(void)
{
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtCreateStream(&other));
    queries_disagree();
    flagged_event_waits_for_a_flag();
    ex_event_waits_for_the_last_record_at_the_call();
    for (int sort = 0; sort < 4; sort++) {
        a_wait_is_for_one_record(sort);
        a_record_thrown_away_leaves_nobody_waiting(sort);
    }
    a_wait_may_time_out();
    times_are_the_streams();
    recording_while_others_poll();
    OK(aclrtDestroyStream(stream));
    OK(aclrtDestroyStream(other));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
