/* register_allocator.c: registers an allocator of this program for a stream, and runs an operator
 * that uses it.
 *
 * A matrix product allocates its workspace from the allocator, and frees it when the product is
 * queued, not when it is done. So the block may be used again at once on the same stream, but
 * elsewhere only after a synchronisation of that stream. All five values of the description have to
 * be set. */
#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "acl/acl_op_compiler.h"

#define OK(call) \
    do { \
        aclError status = (call); \
        if (status != ACL_SUCCESS) { \
            fprintf(stderr, "%s: %d: %s\n", #call, status, aclGetRecentErrMsg()); \
            exit(1); \
        } \
    } while (0)

enum { SIDE = 64, BYTES = SIDE * SIDE * (int)sizeof(float) };

/* ---- the allocator: one block, which is kept and grows ------------------------------------------ */

typedef struct Slot {
    void *address;
    size_t size;
    int in_use, calls, mallocs;
    aclrtStream stream;
} Slot;

static void *on_alloc(aclrtAllocator allocator, size_t size)
{
    Slot *slot = allocator;
    slot->calls++;
    if (slot->in_use) {
        return NULL; /* only one block at a time: the call that needs a second one fails */
    }
    if (size > slot->size) {
        /* Queued tasks may still use the old block. */
        if (aclrtSynchronizeStream(slot->stream) != ACL_SUCCESS ||
            (slot->address != NULL && aclrtFree(slot->address) != ACL_SUCCESS) ||
            aclrtMalloc(&slot->address, size, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) {
            return NULL;
        }
        slot->size = size;
        slot->mallocs++;
    }
    slot->in_use = 1;
    return slot;
}

static void on_free(aclrtAllocator allocator, aclrtAllocatorBlock block)
{
    (void)block;
    ((Slot *)allocator)->in_use = 0;
}

static void *on_advise(aclrtAllocator allocator, size_t size, aclrtAllocatorAddr address)
{
    (void)address;
    return on_alloc(allocator, size);
}

static void *on_address(aclrtAllocatorBlock block)
{
    return ((Slot *)block)->address;
}

static void slot_register(Slot *slot)
{
    aclrtAllocatorDesc desc = aclrtAllocatorCreateDesc();
    OK(aclrtAllocatorSetObjToDesc(desc, slot));
    OK(aclrtAllocatorSetAllocFuncToDesc(desc, on_alloc));
    OK(aclrtAllocatorSetFreeFuncToDesc(desc, on_free));
    OK(aclrtAllocatorSetAllocAdviseFuncToDesc(desc, on_advise));
    OK(aclrtAllocatorSetGetAddrFromBlockFuncToDesc(desc, on_address));
    OK(aclrtAllocatorRegister(slot->stream, desc));
    OK(aclrtAllocatorDestroyDesc(desc)); /* the registration has copied the values */
}

/* ---- the operator ------------------------------------------------------------------------------- */

typedef struct Matrix {
    aclTensorDesc *desc;
    aclDataBuffer *buffer;
    void *memory;
} Matrix;

static Matrix matrix_make(float value)
{
    static float host[SIDE * SIDE];
    const int64_t dims[] = {SIDE, SIDE};
    Matrix made = {aclCreateTensorDesc(ACL_FLOAT, 2, dims, ACL_FORMAT_ND), NULL, NULL};
    for (int i = 0; i < SIDE * SIDE; i++) {
        host[i] = value;
    }
    OK(aclrtMalloc(&made.memory, BYTES, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemcpy(made.memory, BYTES, host, BYTES, ACL_MEMCPY_HOST_TO_DEVICE));
    made.buffer = aclCreateDataBuffer(made.memory, BYTES);
    return made;
}

static void matrix_free(Matrix *matrix)
{
    aclDestroyTensorDesc(matrix->desc);
    OK(aclDestroyDataBuffer(matrix->buffer));
    OK(aclrtFree(matrix->memory));
}

/* Computes c = a * b ten times, and returns the last element of c. */
static float products_run(aclrtStream stream)
{
    static float host[SIDE * SIDE];
    Matrix a = matrix_make(2), b = matrix_make(3), c = matrix_make(0);
    aclTensorDesc *in[] = {a.desc, b.desc}, *out[] = {c.desc};
    aclDataBuffer *from[] = {a.buffer, b.buffer}, *to[] = {c.buffer};
    for (int i = 0; i < 10; i++) {
        OK(aclopCompileAndExecuteV2("MatMul", 2, in, from, 1, out, to, NULL, ACL_ENGINE_SYS,
            ACL_COMPILE_SYS, NULL, stream));
    }
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtMemcpy(host, BYTES, c.memory, BYTES, ACL_MEMCPY_DEVICE_TO_HOST));
    matrix_free(&a);
    matrix_free(&b);
    matrix_free(&c);
    return host[SIDE * SIDE - 1];
}

int main(void)
{
    Slot slot = {0};
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&slot.stream));
    /* Before any operator: the first operator on a stream without an allocator gives the stream a
     * default one for good. */
    slot_register(&slot);
    float result = products_run(slot.stream);
    printf("10 products, %d callbacks for memory, %d mallocs, element %g\n", slot.calls, slot.mallocs,
        (double)result);
    OK(aclrtDestroyStream(slot.stream));
    OK(aclrtAllocatorUnregister(slot.stream));
    if (slot.in_use || slot.calls != 10 || slot.mallocs != 1 || result != 6 * SIDE) {
        fprintf(stderr, "not as expected\n");
        return 1;
    }
    OK(aclrtFree(slot.address));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
