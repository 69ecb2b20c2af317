/* Notifies, as their own files see them. */
#ifndef SIM_NOTIFY_H
#define SIM_NOTIFY_H

#include "core.h"

struct SharedNotify;

typedef struct Notify {
    uint32_t id;
    int32_t device;
    _Atomic uint32_t own_value;
    _Atomic uint32_t *value; /* own_value, or the shared one once it was exported or imported */
    _Atomic uint32_t users;  /* the handle, and each queued task */
    struct SharedNotify *_Atomic shared;
} Notify;

aclError notify_resolve(const void *handle, Notify **notify);
/* A notify of the current context's device. */
aclError notify_create(void **out, HandleKind kind);
/* The value changed: wakes who waits for it, in other processes too. */
void notify_wake(Notify *notify);
/* As stream_park. */
bool notify_park(Stream *stream, Notify *notify, ParkReady ready, const void *argument,
                 int64_t deadline_ns);
void notify_unshare(Notify *notify);

#endif
