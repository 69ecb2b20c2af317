/* The part of ONNX Runtime's C API that registers an allocator with its environment.

   The API is a table of functions that only grows; a function is identified by its index in the table.  A
   process may have several copies of ONNX Runtime's library, because the Python package contains one in its
   extension module.  Each copy has one environment, which all its sessions share.  `door_attach` registers a
   `DoorSeat`, which has an allocator, with the environment.

   ONNX Runtime calls the function `RegisterCustomOps` of a library of custom operators, and passes the API
   table of the copy that calls.  There is no other way to get the table of the copy in the Python package.  Our
   `RegisterCustomOps` registers no operators; it only stores the table for `door_attach`. */
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
    void *later[4]; /* room for members of later versions; a library does not read them for our version */
} OrtAllocator;

typedef struct OrtApiBase {
    const void *(*get_api)(uint32_t version);
    const char *(*version_text)(void);
} OrtApiBase;

typedef void *(*DoorAlloc)(void *pool, size_t size, int weight);
typedef void (*DoorFree)(void *pool, void *address);

/* The registration of an allocator with one environment.  It is never freed, because sessions keep its address. */
typedef struct DoorSeat {
    OrtAllocator allocator; /* the first member, because ONNX Runtime passes its address to the functions */
    const OrtApiBase *base;
    OrtEnv *env;
    OrtMemoryInfo *info;
    DoorAlloc alloc;
    DoorFree free;
    void *pool;
} DoorSeat;

/* Returns the table that the last `RegisterCustomOps` on this thread got, and forgets it; NULL if there is none. */
const OrtApiBase *door_base_take(void);

/* Makes a seat the allocator of the environment's CPU memory.  Returns true; or writes the error to `reason` and
   returns false. */
int door_attach(DoorSeat *seat, const OrtApiBase *base, char *reason, size_t room);
/* Removes the seat from the environment.  Existing sessions continue to use it.  Result as for `door_attach`. */
int door_detach(DoorSeat *seat, char *reason, size_t room);

#endif
