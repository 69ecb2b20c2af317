/* Notifies, as their own files see them. */
#ifndef SIM_NOTIFY_H
#define SIM_NOTIFY_H

#include "base/core.h"
#include "races/race.h"

struct SharedNotify;

typedef struct Notify {
    uint32_t id;
    int32_t device;
    pthread_mutex_t lock;     /* of the value's place: held while it is changed or taken */
    _Atomic uint32_t own_value;
    _Atomic uint32_t *value;  /* own_value, or the shared one once it was exported or imported */
    struct SharedNotify *_Atomic shared;
    struct RaceBox *order;   /* the order checker's: place of all records */
} Notify;

/* A notify is held by each call that resolved it and by each queued task. The last of them frees
 * what a destroyed notify owns. */
void notify_unref(Notify *const *notify);
#define NOTIFY_REF(name) Notify *name __attribute__((cleanup(notify_unref))) = NULL
/* The live notify of that handle, held; 107017 if it is none. */
aclError notify_resolve(const void *handle, Notify **notify);
/* A notify of the current context's device. */
aclError notify_create(void **out, HandleKind kind);
/* The value changed: wakes the threads that wait for it, in other processes too. */
void notify_wake(Notify *notify);
/* As stream_park. */
bool notify_park(Stream *stream, Notify *notify, ParkReady ready, const void *argument,
                 int64_t deadline_ns);
void notify_unshare(Notify *notify);

#endif
