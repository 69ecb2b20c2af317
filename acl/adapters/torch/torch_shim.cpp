/* Torch's optional hooks that need C++.  The file is compiled against the installed torch and torch_npu at the first
   `acl.torch.install()` (acl/adapters/torch/_shim.py).

   The functions convert our counters to torch's DeviceStats, get the ACL stream from torch's stream object, record
   events through torch_npu's task queue, and throw torch's own out-of-memory error.
   Nothing here takes the GIL. */
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include "torch_npu/csrc/core/npu/NPUEvent.h"
#include "torch_npu/csrc/core/npu/NPUStream.h"

#include <mutex>
#include <unordered_map>

#include "adapters/pluggable/stats.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

namespace {

bool (*door_stats)(int device, DoorStats *stats);
bool (*door_share)(void *address, void *stream);

// The torch streams that were passed to `record_stream`, by their ACL handles.
std::mutex streams_mutex;
std::unordered_map<void *, c10::Stream> streams;
// True on the program's threads, false on the thread of the task queue, which must not put work into the queue.
thread_local bool is_callers = false;

void stat_copy(StatArray &to, const DoorStat *from) {
    for (size_t i = 0; i < DOOR_KINDS; i++) {
        to[i].current = from[i].current;
        to[i].peak = from[i].peak;
        to[i].allocated = from[i].increased;
        to[i].freed = from[i].decreased;
    }
}

} // namespace

EXPORT void aclpool_shim_connect(bool (*stats)(int, DoorStats *), bool (*share)(void *, void *)) {
    door_stats = stats;
    door_share = share;
}

EXPORT DeviceStats aclpool_shim_stats(c10::DeviceIndex device) {
    DoorStats stats;
    DeviceStats made;
    if (!door_stats(device, &stats)) {
        return made;
    }
    stat_copy(made.allocation, stats.blocks);
    stat_copy(made.active, stats.blocks);
    stat_copy(made.allocated_bytes, stats.bytes);
    stat_copy(made.active_bytes, stats.bytes);
    stat_copy(made.requested_bytes, stats.requested);
    stat_copy(made.reserved_bytes, stats.reserved);
    stat_copy(made.segment, stats.pages);
    made.num_alloc_retries = stats.retries;
    made.num_ooms = stats.ooms;
    made.num_device_alloc = stats.driver_allocs;
    made.num_device_free = stats.driver_frees;
    return made;
}

EXPORT void aclpool_shim_record(void *address, c10_npu::NPUStream stream) {
    void *raw = stream.stream(false); // false: do not wait for the task queue
    is_callers = true;
    {
        std::lock_guard<std::mutex> guard(streams_mutex);
        streams.insert_or_assign(raw, stream.unwrap());
    }
    door_share(address, raw);
}

EXPORT void *aclpool_shim_mark(int, void *stream) {
    if (!is_callers) {
        return nullptr;
    }
    try {
        std::unique_lock<std::mutex> guard(streams_mutex);
        auto found = streams.find(stream);
        if (found == streams.end()) {
            return nullptr;
        }
        c10_npu::NPUStream known(found->second);
        guard.unlock();
        auto event = std::make_unique<c10_npu::NPUEvent>();
        event->record(known);
        return event.release();
    } catch (const std::exception &) {
        return nullptr; // without a marker, the pool waits until the task queue is drained
    }
}

EXPORT bool aclpool_shim_mark_done(void *mark) {
    try {
        return static_cast<c10_npu::NPUEvent *>(mark)->query();
    } catch (const std::exception &) {
        return false;
    }
}

EXPORT void aclpool_shim_mark_drop(void *mark) {
    delete static_cast<c10_npu::NPUEvent *>(mark);
}

EXPORT void aclpool_shim_throw(const char *message) {
    throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message);
}
