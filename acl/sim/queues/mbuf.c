/* mbuf.c: shared buffers (aclrtMbuf): reference-counted data, a small user area, chains.

   A buffer is a handle of data; copies of the handle share the data.  A chain is a list of buffers, which are
   freed with its head.

   Thread rule: reference counts are atomic.  A chain, and a buffer's length and user area, are used by one
   thread at a time. */
#include <stdlib.h>
#include <string.h>

#include "base/core.h"
#include "generated/exports.h"

enum { USER_AREA = 96, CHAIN_MAX = 128 };

/* The data that all copies of a handle share. */
typedef struct MbufData {
    atomic_uint references;
    size_t size;
    unsigned char user[USER_AREA];
    _Alignas(64) unsigned char bytes[];
} MbufData;

typedef struct Mbuf {
    MbufData *data;
    size_t length; /* bytes in use, at most the size of the data */
    struct Mbuf *next;
    struct Mbuf *head; /* the first buffer of its chain; itself if it is in none */
} Mbuf;

static Mbuf *mbuf_new(MbufData *data)
{
    Mbuf *mbuf = handle_new(HANDLE_MBUF, sizeof *mbuf);
    if (mbuf != NULL) {
        *mbuf = (Mbuf){.data = data, .length = data->size, .head = mbuf};
    }
    return mbuf;
}

static void data_release(MbufData *data)
{
    if (atomic_fetch_sub(&data->references, 1) == 1) {
        free(data);
    }
}

/* Returns 100000 from the function if the argument is NULL or not a live buffer. */
#define REQUIRE_MBUF(argument) REQUIRE((argument) != NULL && handle_is((argument), HANDLE_MBUF))

aclError sim_aclrtAllocBuf(aclrtMbuf *buf, size_t size)
{
    REQUIRE(buf);
    REQUIRE(size != 0 && size <= SIZE_MAX / 2);
    size_t whole = (sizeof(MbufData) + size + 63) / 64 * 64;
    MbufData *data = aligned_alloc(64, whole);
    if (data == NULL) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no host memory for a buffer of %zu bytes",
                    size);
    }
    memset(data, 0, sizeof *data);
    atomic_init(&data->references, 1);
    data->size = size;
    Mbuf *mbuf = mbuf_new(data);
    if (mbuf == NULL) {
        free(data);
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no handle left for a buffer");
    }
    *buf = mbuf;
    return ACL_SUCCESS;
}

/* Frees a buffer or, if the buffer is the head of a chain, all buffers of the chain. Refuses any other buffer of a
   chain: it is freed with the head. */
aclError sim_aclrtFreeBuf(aclrtMbuf buf)
{
    REQUIRE_MBUF(buf);
    Mbuf *head = buf;
    REQUIRE(head->head == head);
    while (head != NULL) {
        Mbuf *next = head->next;
        data_release(head->data);
        handle_retire(head);
        head = next;
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtGetBufData(const aclrtMbuf buf, void **dataPtr, size_t *size)
{
    REQUIRE_MBUF(buf);
    REQUIRE(dataPtr);
    REQUIRE(size);
    const Mbuf *mbuf = buf;
    *dataPtr = mbuf->data->bytes;
    *size = mbuf->data->size;
    return ACL_SUCCESS;
}

aclError sim_aclrtSetBufDataLen(aclrtMbuf buf, size_t len)
{
    REQUIRE_MBUF(buf);
    Mbuf *mbuf = buf;
    REQUIRE(len <= mbuf->data->size);
    mbuf->length = len;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetBufDataLen(aclrtMbuf buf, size_t *len)
{
    REQUIRE_MBUF(buf);
    REQUIRE(len);
    *len = ((const Mbuf *)buf)->length;
    return ACL_SUCCESS;
}

aclError sim_aclrtGetBufUserData(const aclrtMbuf buf, void *dataPtr, size_t size, size_t offset)
{
    REQUIRE_MBUF(buf);
    REQUIRE(dataPtr);
    REQUIRE(size <= USER_AREA && offset <= USER_AREA - size);
    memcpy(dataPtr, ((const Mbuf *)buf)->data->user + offset, size);
    return ACL_SUCCESS;
}

aclError sim_aclrtSetBufUserData(aclrtMbuf buf, const void *dataPtr, size_t size, size_t offset)
{
    REQUIRE_MBUF(buf);
    REQUIRE(dataPtr);
    REQUIRE(size <= USER_AREA && offset <= USER_AREA - size);
    memcpy(((Mbuf *)buf)->data->user + offset, dataPtr, size);
    return ACL_SUCCESS;
}

aclError sim_aclrtCopyBufRef(const aclrtMbuf buf, aclrtMbuf *newBuf)
{
    REQUIRE_MBUF(buf);
    REQUIRE(newBuf);
    const Mbuf *mbuf = buf;
    Mbuf *copy = mbuf_new(mbuf->data);
    if (copy == NULL) {
        return fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "no handle left for a buffer");
    }
    atomic_fetch_add(&mbuf->data->references, 1);
    copy->length = mbuf->length;
    *newBuf = copy;
    return ACL_SUCCESS;
}

static uint32_t chain_length(const Mbuf *head)
{
    uint32_t count = 0;
    for (const Mbuf *m = head; m != NULL; m = m->next) {
        count++;
    }
    return count;
}

aclError sim_aclrtAppendBufChain(aclrtMbuf headBuf, aclrtMbuf buf)
{
    REQUIRE_MBUF(headBuf);
    REQUIRE_MBUF(buf);
    Mbuf *head = headBuf;
    Mbuf *added = buf;
    REQUIRE(head->head == head);
    REQUIRE(added->head == added && added != head);
    REQUIRE(chain_length(head) + chain_length(added) <= CHAIN_MAX);
    Mbuf *last = head;
    while (last->next != NULL) {
        last = last->next;
    }
    last->next = added;
    for (Mbuf *m = added; m != NULL; m = m->next) {
        m->head = head;
    }
    return ACL_SUCCESS;
}

aclError sim_aclrtGetBufChainNum(aclrtMbuf headBuf, uint32_t *num)
{
    REQUIRE_MBUF(headBuf);
    REQUIRE(num);
    *num = chain_length(headBuf);
    return ACL_SUCCESS;
}

aclError sim_aclrtGetBufFromChain(aclrtMbuf headBuf, uint32_t index, aclrtMbuf *buf)
{
    REQUIRE_MBUF(headBuf);
    REQUIRE(buf);
    REQUIRE(index < chain_length(headBuf));
    Mbuf *found = headBuf;
    for (uint32_t i = 0; i < index; i++) {
        found = found->next;
    }
    *buf = found;
    return ACL_SUCCESS;
}
