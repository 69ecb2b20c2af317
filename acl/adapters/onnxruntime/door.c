/* door.c: see door.h. */
#include "door.h"

#include <stdio.h>
#include <string.h>

enum {
    API_VERSION = 16,        /* has all functions that are used here; ONNX Runtime supports it since 1.16 */
    ALLOCATOR_VERSION = 18,  /* the first version with `reserve` */
    ERROR_ALONE = 3,         /* log level "errors only", for an environment that is made here */
    DEVICE_ALLOCATOR = 0,
    DEFAULT_MEMORY = 0,
};

/* The used functions of the API table: X(member, index in the table, result, parameters). */
#define FUNCTIONS(X) \
    X(error_message, 2, const char *, (const OrtStatus *)) \
    X(create_env, 3, OrtStatus *, (int, const char *, OrtEnv **)) \
    X(create_info, 68, OrtStatus *, (const char *, int, int, int, OrtMemoryInfo **)) \
    X(release_status, 93, void, (OrtStatus *)) \
    X(release_info, 94, void, (OrtMemoryInfo *)) \
    X(register_allocator, 176, OrtStatus *, (OrtEnv *, OrtAllocator *)) \
    X(unregister_allocator, 177, OrtStatus *, (OrtEnv *, const OrtMemoryInfo *))

typedef struct Api {
#define MEMBER(member, place, result, parameters) result(*member) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
} Api;

static _Thread_local const OrtApiBase *handed;

__attribute__((visibility("default"))) OrtStatus *RegisterCustomOps(
    OrtSessionOptions *options, const OrtApiBase *base);

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base)
{
    (void)options;
    handed = base;
    return NULL;
}

const OrtApiBase *door_base_take(void)
{
    const OrtApiBase *base = handed;
    handed = NULL;
    return base;
}

static int api_read(const OrtApiBase *base, Api *api, char *reason, size_t room)
{
    const char *table = base->get_api(API_VERSION);
    if (table == NULL) {
        (void)snprintf(reason, room, "ONNX Runtime %s is too old, 1.16 is wanted",
            base->version_text());
        return 0;
    }
#define READ(member, place, result, parameters) \
    memcpy(&api->member, table + (place) * sizeof(void *), sizeof(void *));
    FUNCTIONS(READ)
#undef READ
    return 1;
}

static int good(const Api *api, OrtStatus *status, char *reason, size_t room)
{
    if (status == NULL) {
        return 1;
    }
    (void)snprintf(reason, room, "%s", api->error_message(status));
    api->release_status(status);
    return 0;
}

static void *on_alloc(OrtAllocator *self, size_t size)
{
    const DoorSeat *seat = (const DoorSeat *)self;
    return seat->alloc(seat->pool, size, 0);
}

static void *on_reserve(OrtAllocator *self, size_t size)
{
    const DoorSeat *seat = (const DoorSeat *)self;
    return seat->alloc(seat->pool, size, 1);
}

static void on_free(OrtAllocator *self, void *address)
{
    const DoorSeat *seat = (const DoorSeat *)self;
    if (address != NULL) {
        seat->free(seat->pool, address);
    }
}

static const OrtMemoryInfo *on_info(const OrtAllocator *self)
{
    return ((const DoorSeat *)self)->info;
}

int door_attach(DoorSeat *seat, const OrtApiBase *base, char *reason, size_t room)
{
    Api api;
    if (!api_read(base, &api, reason, room)
        || !good(&api, api.create_env(ERROR_ALONE, "aclpool", &seat->env), reason, room)
        || !good(&api, api.create_info("Cpu", DEVICE_ALLOCATOR, 0, DEFAULT_MEMORY, &seat->info),
            reason, room)) {
        return 0;
    }
    seat->base = base;
    seat->allocator.version = ALLOCATOR_VERSION;
    seat->allocator.alloc = on_alloc;
    seat->allocator.reserve = on_reserve;
    seat->allocator.free = on_free;
    seat->allocator.info = on_info;
    if (good(&api, api.register_allocator(seat->env, &seat->allocator), reason, room)) {
        return 1;
    }
    api.release_info(seat->info);
    return 0;
}

int door_detach(DoorSeat *seat, char *reason, size_t room)
{
    Api api;
    return api_read(seat->base, &api, reason, room)
        && good(&api, api.unregister_allocator(seat->env, seat->info), reason, room);
}
