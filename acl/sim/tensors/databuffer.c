/* databuffer.c: aclDataBuffer, an address with a size.

   The memory belongs to the user: nothing here allocates, frees or touches it.
   A buffer may be changed by one thread at a time. */
#include "tensors/databuffer.h"

#include "base/core.h"
#include "generated/exports.h"

aclDataBuffer *sim_aclCreateDataBuffer(void *data, size_t size)
{
    aclDataBuffer *buffer = handle_new(HANDLE_DATA_BUFFER, sizeof *buffer);
    if (buffer != NULL) {
        buffer->address = data;
        buffer->size = size;
    }
    return buffer;
}

aclError sim_aclDestroyDataBuffer(const aclDataBuffer *dataBuffer)
{
    REQUIRE(dataBuffer);
    REQUIRE(handle_is(dataBuffer, HANDLE_DATA_BUFFER));
    /* The cast removes the const of CANN's header: the simulator made the object and may change it. */
    handle_retire((void *)(uintptr_t)dataBuffer);
    return ACL_SUCCESS;
}

aclError sim_aclUpdateDataBuffer(aclDataBuffer *dataBuffer, void *data, size_t size)
{
    REQUIRE(dataBuffer);
    REQUIRE(handle_is(dataBuffer, HANDLE_DATA_BUFFER));
    dataBuffer->address = data;
    dataBuffer->size = size;
    return ACL_SUCCESS;
}

void *sim_aclGetDataBufferAddr(const aclDataBuffer *dataBuffer)
{
    return handle_is(dataBuffer, HANDLE_DATA_BUFFER) ? dataBuffer->address : NULL;
}

/* The older form cuts the size to 32 bits, as the runtime does. */
uint32_t sim_aclGetDataBufferSize(const aclDataBuffer *dataBuffer)
{
    return handle_is(dataBuffer, HANDLE_DATA_BUFFER) ? (uint32_t)dataBuffer->size : 0;
}

size_t sim_aclGetDataBufferSizeV2(const aclDataBuffer *dataBuffer)
{
    return handle_is(dataBuffer, HANDLE_DATA_BUFFER) ? dataBuffer->size : 0;
}
