/* The exported symbols: `aclpool_malloc` and `aclpool_free` with the ABI of torch_npu's and MindSpore's pluggable
   allocators.  Each further seat has its own pair (`aclpool_malloc_1` ...), because the arguments of a call do not
   say for which pool it is.

   If a program opens this file by its path and calls the functions before Python has loaded
   `acl.adapters.pluggable._door`, they fail.  This file is compiled with -fexceptions, because C++ exceptions pass
   through its functions (`DoorThrow`). */
#include "adapters/pluggable/door.h"

#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

DoorCalls door_calls;
DoorThrow door_throw_memory;
DoorThrow door_throw_refusal;
static char unknown_stream; /* its address is used as the handle of an unknown stream */
/* The seat above 0 at which this thread's last allocation failed, with the reason in `failure`; 0: no such failure. */
static _Thread_local uint32_t failed_seat;
static _Thread_local char failure[DOOR_TEXT];

static void complain(void) {
    static uint32_t told;
    if (__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) == 0) {
        fputs("aclpool: the allocator was called before acl.torch or acl.mindspore was imported; "
              "it gives no memory\n",
              stderr);
    }
}

static void *entry_alloc(uint32_t seat, size_t size, int device, void *stream) {
    void *address = NULL;
    char text[DOOR_TEXT];
    if (door_calls.alloc == NULL) {
        complain();
        return NULL;
    }
    if (size == 0) {
        return NULL;
    }
    address = door_calls.alloc(seat, size, device, stream);
    if (address != NULL) {
        failed_seat = 0;
        return address;
    }
    if (seat != 0) {
        failed_seat = seat;
        (void)door_calls.why(seat, device, size, failure, sizeof failure);
    } else if (door_throw_memory != NULL) {
        (door_calls.why(seat, device, size, text, sizeof text) ? door_throw_memory
                                                               : door_throw_refusal)(text);
    }
    return NULL;
}

uint32_t door_failure(char *text) {
    uint32_t seat = failed_seat;
    memcpy(text, failure, DOOR_TEXT);
    failed_seat = 0;
    return seat;
}

static void entry_free(void *address) {
    if (address != NULL && door_calls.free != NULL) {
        door_calls.free(address);
    }
}

#define SEAT(number, suffix)                                                               \
    EXPORT void *aclpool_malloc##suffix(size_t size, int device, void *stream);            \
    EXPORT void *aclpool_malloc##suffix(size_t size, int device, void *stream) {           \
        return entry_alloc(number, size, device, stream);                                  \
    }                                                                                      \
    EXPORT void aclpool_free##suffix(void *address, size_t size, int device, void *stream); \
    EXPORT void aclpool_free##suffix(void *address, size_t size, int device, void *stream) { \
        (void)size, (void)device, (void)stream;                                            \
        entry_free(address);                                                               \
    }

SEAT(0, )
SEAT(1, _1)
SEAT(2, _2)
SEAT(3, _3)
SEAT(4, _4)
SEAT(5, _5)
SEAT(6, _6)
SEAT(7, _7)
SEAT(8, _8)
SEAT(9, _9)
SEAT(10, _10)
SEAT(11, _11)
SEAT(12, _12)
SEAT(13, _13)
SEAT(14, _14)
SEAT(15, _15)

/* The next functions are for torch's optional hooks, which use seat 0. */

EXPORT void aclpool_reset(bool check_error);
EXPORT void aclpool_reset(bool check_error) {
    /* If `check_error` is false, the framework calls this function at exit, where nothing needs to be freed. */
    if (check_error && door_calls.empty != NULL) {
        door_calls.empty(0);
    }
}

EXPORT void *aclpool_base(void *address, size_t *size);
EXPORT void *aclpool_base(void *address, size_t *size) {
    return door_calls.base == NULL ? address : door_calls.base(address, size);
}

EXPORT bool aclpool_share(void *address, void *stream);
EXPORT bool aclpool_share(void *address, void *stream) {
    return door_calls.share != NULL && door_calls.share(address, stream);
}

/* torch_npu passes its stream object by a pointer.  Only C++ code that is compiled against torch_npu can get the ACL
   stream from it.  So this function notes a use by an unknown stream. */
EXPORT void aclpool_share_unknown(void *address, const void *stream);
EXPORT void aclpool_share_unknown(void *address, const void *stream) {
    (void)stream;
    if (door_calls.share != NULL) {
        door_calls.share(address, &unknown_stream);
    }
}

EXPORT bool aclpool_stats(int device, DoorStats *stats);
EXPORT bool aclpool_stats(int device, DoorStats *stats) {
    return door_calls.stats != NULL && door_calls.stats(0, device, stats);
}

EXPORT void aclpool_reset_peak(int8_t device);
EXPORT void aclpool_reset_peak(int8_t device) {
    if (door_calls.reset != NULL) {
        door_calls.reset(0, device, true);
    }
}

EXPORT void aclpool_fraction(double fraction, int device);
EXPORT void aclpool_fraction(double fraction, int device) {
    if (door_calls.fraction != NULL) {
        door_calls.fraction(0, device, fraction);
    }
}

/* Refuses a graph capture.  The memory of a captured graph must not be used again before the graph is destroyed, but
   torch's hooks do not say to which graph a block belongs.  Arguments that C++ passes by reference are ignored. */
EXPORT void aclpool_refuse_capture(int device);
EXPORT void aclpool_refuse_capture(int device) {
    (void)device;
    if (door_throw_refusal != NULL) {
        door_throw_refusal("aclpool: after acl.torch.install(), memory cannot be routed to a "
                           "MemPool or captured in an NPUGraph; use acl.torch.mem_pool() instead");
    }
}
