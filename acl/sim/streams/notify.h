/* Notifies: the interface for their own files. */
#ifndef SIM_NOTIFY_H
#define SIM_NOTIFY_H

#include "base/core.h"
#include "races/race.h"

struct SharedNotify;

typedef struct Notify {
    uint32_t id;
    int32_t device;
    pthread_mutex_t lock;     /* guards the pointer `value` and a notify's bit, not a counting notify's number */
    _Atomic uint32_t own_value;
    _Atomic uint32_t *value;  /* own_value, or the shared value if the notify was exported or imported */
    struct SharedNotify *_Atomic shared;
    struct RaceBox *order;   /* order checker: the points of all records in the order of the device's work, merged */
} Notify;

/* Drops one reference. Each call that resolved a notify and each queued task that uses it hold
 * one. The last drop frees what a destroyed notify owns. */
void notify_unref(Notify *const *notify);
#define NOTIFY_REF(name) Notify *name __attribute__((cleanup(notify_unref))) = NULL
/* Gives the live notify of that handle with a reference; 107017 if there is none. */
aclError notify_resolve(const void *handle, Notify **notify);
/* Makes a notify on the current context's device. */
aclError notify_create(void **out, HandleKind kind);
/* Wakes the threads that wait for the value, in other processes too; called when the value has
 * changed. */
void notify_wake(Notify *notify);
/* Waits in a task of `stream`, as stream_park does, until `ready` accepts the notify's value. */
bool notify_park(Stream *stream, Notify *notify, ParkReady ready, const void *argument,
                 int64_t deadline_ns);
void notify_unshare(Notify *notify);

#endif
