/* The part of ONNX Runtime's C API that registers an allocator with its environment.

   The API is a table of functions that only grows; a function is identified by its index.  A process may
   have several copies of the library, because Python's extension module contains one. Each copy has one
   environment, which all its sessions share. `door_attach` registers a *seat*, which holds an allocator, with it.

   ONNX Runtime calls `RegisterCustomOps` in a library of custom operators, with the table of the copy that
   calls. This is the only way to the table of the copy inside Python's module. Our function registers no
   operators; it keeps the table for `door_attach`. */
#ifndef ONNX_DOOR_H
#define ONNX_DOOR_H

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtSessionOptions OrtSessionOptions;

/* ONNX Runtime's interface of an allocator. */
typedef struct OrtAllocator {
    uint32_t version;
    void *(*alloc)(struct OrtAllocator *self, size_t size);
    void (*free)(struct OrtAllocator *self, void *address);
    const OrtMemoryInfo *(*info)(const struct OrtAllocator *self);
    void *(*reserve)(struct OrtAllocator *self, size_t size); /* for weights, when a session is made */
    void *later[4]; /* members of later versions, which are not read for our version */
} OrtAllocator;

typedef struct OrtApiBase {
    const void *(*get_api)(uint32_t version);
    const char *(*version_text)(void);
} OrtApiBase;

typedef void *(*DoorAlloc)(void *pool, size_t size, int weight);
typedef void (*DoorFree)(void *pool, void *address);

/* The allocator of one environment.  It is never freed, because sessions keep its address. */
typedef struct DoorSeat {
    OrtAllocator allocator; /* the first member, because ONNX Runtime passes its address to the functions */
    const OrtApiBase *base;
    OrtEnv *env;
    OrtMemoryInfo *info;
    DoorAlloc alloc;
    DoorFree free;
    void *pool;
} DoorSeat;

/* Returns and forgets the table of the last `RegisterCustomOps` on this thread. */
const OrtApiBase *door_base_take(void);

/* Makes a seat the allocator of the environment's CPU memory. Returns 0, or writes why not to `reason`. */
int door_attach(DoorSeat *seat, const OrtApiBase *base, char *reason, size_t room);
/* Removes the seat from the environment. Sessions that use it continue to do so. */
int door_detach(DoorSeat *seat, char *reason, size_t room);

#endif
