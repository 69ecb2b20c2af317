/* The driver functions that the allocator's core calls, for host memory.

   A frame is a part of one sparse file in memory.  So it can be mapped at another address with its content, and at
   several addresses.  A reservation is inaccessible address space.  Only the host uses the memory, so the core's
   streams never have work, and are always complete.  Segments and events are not supported (status 207000).

   Any thread may call any function.  The file is shared with the children of a fork; they get copies of the mapped
   pages, and must not map or free pages. */
#ifndef ONNX_PAGES_H
#define ONNX_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "acl/acl_rt.h"

aclError host_reserve(
    void **address, size_t size, size_t alignment, void *expect, uint64_t flags);
aclError host_release(void *address);
aclError host_physical(
    aclrtDrvMemHandle *handle, size_t size, const aclrtPhysicalMemProp *prop, uint64_t flags);
aclError host_free_physical(aclrtDrvMemHandle handle);
aclError host_map(
    void *address, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags);
aclError host_unmap(void *address);
aclError host_malloc(void **address, size_t size, aclrtMemMallocPolicy policy);
aclError host_free(void *address);
aclError host_sync(aclrtStream stream, int32_t timeout_ms);
aclError host_sync_device(int32_t timeout_ms);
aclError host_query(aclrtStream stream, aclrtStreamStatus *status);
aclError host_mem_info(aclrtMemAttr attr, size_t *room, size_t *total);
aclError host_capture_info(
    aclrtStream stream, aclmdlRICaptureStatus *status, aclmdlRI *graph);
aclError host_event_create(aclrtEvent *event, uint32_t flag);
aclError host_event_destroy(aclrtEvent event);
aclError host_event_record(aclrtEvent event, aclrtStream stream);
aclError host_event_query(aclrtEvent event, aclrtEventRecordedStatus *status);

/* Returns the bytes of all frames of the process. */
size_t host_physical_bytes(void);

#endif
