/* ONNX Runtime's C API, as far as it takes to give its environment an allocator of ours.

   The API is a table of functions that only ever grows; a function is known by its place in it.
   Each copy of the library in a process (Python's extension module carries one of its own) has one
   environment, which all its sessions share: `door_attach` registers a *seat* with it.

   `RegisterCustomOps` is what ONNX Runtime calls in a library of custom operators.  It is handed
   the table of the very copy that calls, which is the one way to the copy inside Python's module;
   ours registers no operators, it keeps the table for `door_attach`. */
#ifndef ONNX_DOOR_H
#define ONNX_DOOR_H

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtSessionOptions OrtSessionOptions;

/* What an allocator looks like to ONNX Runtime. */
typedef struct OrtAllocator {
    uint32_t version;
    void *(*alloc)(struct OrtAllocator *self, size_t size);
    void (*free)(struct OrtAllocator *self, void *address);
    const OrtMemoryInfo *(*info)(const struct OrtAllocator *self);
    void *(*reserve)(struct OrtAllocator *self, size_t size); /* weights, at a session's making */
    void *later[4]; /* members of later versions; not looked at in ours */
} OrtAllocator;

typedef struct OrtApiBase {
    const void *(*get_api)(uint32_t version);
    const char *(*version_text)(void);
} OrtApiBase;

typedef void *(*DoorAlloc)(void *pool, size_t size, int weight);
typedef void (*DoorFree)(void *pool, void *address);

/* What one environment was given.  It lives as long as the process: sessions keep its address. */
typedef struct DoorSeat {
    OrtAllocator allocator; /* first: ONNX Runtime hands its address back */
    const OrtApiBase *base;
    OrtEnv *env;
    OrtMemoryInfo *info;
    DoorAlloc alloc;
    DoorFree free;
    void *pool;
} DoorSeat;

/* The table that came with the last `RegisterCustomOps` on this thread, which then is forgotten. */
const OrtApiBase *door_base_take(void);

/* Makes a seat the allocator of the environment's CPU memory; what is wrong goes to `reason`. */
int door_attach(DoorSeat *seat, const OrtApiBase *base, char *reason, size_t room);
/* The environment forgets the seat; sessions that have it go on with it. */
int door_detach(DoorSeat *seat, char *reason, size_t room);

#endif
