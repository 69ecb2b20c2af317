/* Models, single operators and kernels in several threads: each thread has its own stream, all use one model, and
 * load and unload other models.  The program checks the results; the sanitizers find other errors. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "acl/acl_op_compiler.h"
#include "check.h"

enum { THREADS = 4, ROUNDS = 40, COUNT = 64 };

/* Control API (acl/sim/kernels/kernel.h): not part of ACL's API, so declared here. */
aclError acl_sim_kernel_make(const char *name, void (*code)(void *, uint32_t, uint32_t),
                             const uint32_t *sizes, aclrtBinHandle *binary,
                             aclrtFuncHandle *function);

/* ---- an ONNX file: y = -relu(x), x of one dynamic dimension ------------------------------------ */

typedef struct Bytes {
    size_t used;
    unsigned char data[512];
} Bytes;

static void put(Bytes *bytes, unsigned char value)
{
    bytes->data[bytes->used++] = value;
}

static void put_bytes(Bytes *bytes, unsigned field, const void *data, size_t size)
{
    CHECK(size < 128 * 128);
    put(bytes, (unsigned char)(field << 3 | 2));
    if (size >= 128) {
        put(bytes, (unsigned char)(size % 128 | 128));
        put(bytes, (unsigned char)(size / 128));
    } else {
        put(bytes, (unsigned char)size);
    }
    memcpy(bytes->data + bytes->used, data, size);
    bytes->used += size;
}

static void put_text(Bytes *bytes, unsigned field, const char *text)
{
    put_bytes(bytes, field, text, strlen(text));
}

static void put_number(Bytes *bytes, unsigned field, unsigned char value)
{
    put(bytes, (unsigned char)(field << 3));
    put(bytes, value);
}

static void put_node(Bytes *graph, const char *input, const char *output, const char *type)
{
    Bytes node = {0};
    put_text(&node, 1, input);
    put_text(&node, 2, output);
    put_text(&node, 4, type);
    put_bytes(graph, 1, node.data, node.used);
}

static void put_value(Bytes *graph, unsigned field, const char *name)
{
    Bytes dim = {0}, shape = {0}, tensor = {0}, type = {0}, value = {0};
    put_text(&dim, 2, "n");
    put_bytes(&shape, 1, dim.data, dim.used);
    put_number(&tensor, 1, 1);
    put_bytes(&tensor, 2, shape.data, shape.used);
    put_bytes(&type, 1, tensor.data, tensor.used);
    put_text(&value, 1, name);
    put_bytes(&value, 2, type.data, type.used);
    put_bytes(graph, field, value.data, value.used);
}

static Bytes model_make(void)
{
    Bytes graph = {0}, opset = {0}, model = {0};
    put_node(&graph, "x", "r", "Relu");
    put_node(&graph, "r", "y", "Neg");
    put_value(&graph, 11, "x");
    put_value(&graph, 12, "y");
    put_number(&opset, 2, 17);
    put_number(&model, 1, 8);
    put_bytes(&model, 7, graph.data, graph.used);
    put_bytes(&model, 8, opset.data, opset.used);
    return model;
}

/* ---- the objects of a thread ------------------------------------------------------------------- */

static aclrtContext context;
static uint32_t shared_model;
static aclrtFuncHandle kernel;

typedef struct Desk {
    aclrtStream stream;
    float *x, *y; /* on the device */
    aclTensorDesc *desc;
    aclDataBuffer *in, *out;
} Desk;

static void kernel_double(void *args, uint32_t block, uint32_t blocks)
{
    float *values = *(float **)args;
    for (uint32_t i = block; i < COUNT; i += blocks) {
        values[i] *= 2.0F;
    }
}

static Desk desk_make(void)
{
    Desk desk;
    float start[COUNT];
    int64_t dims[] = {COUNT};
    for (int i = 0; i < COUNT; i++) {
        start[i] = (float)(i - COUNT / 2);
    }
    CHECK(aclrtSetCurrentContext(context) == 0);
    CHECK(aclrtCreateStream(&desk.stream) == 0);
    CHECK(aclrtMalloc((void **)&desk.x, sizeof start, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
    CHECK(aclrtMalloc((void **)&desk.y, sizeof start, ACL_MEM_MALLOC_HUGE_FIRST) == 0);
    CHECK(aclrtMemcpy(desk.x, sizeof start, start, sizeof start, ACL_MEMCPY_HOST_TO_DEVICE) == 0);
    desk.desc = aclCreateTensorDesc(ACL_FLOAT, 1, dims, ACL_FORMAT_ND);
    desk.in = aclCreateDataBuffer(desk.x, sizeof start);
    desk.out = aclCreateDataBuffer(desk.y, sizeof start);
    return desk;
}

static void desk_clear(Desk *desk)
{
    CHECK(aclrtDestroyStream(desk->stream) == 0);
    CHECK(aclDestroyDataBuffer(desk->in) == 0);
    CHECK(aclDestroyDataBuffer(desk->out) == 0);
    aclDestroyTensorDesc(desk->desc);
    CHECK(aclrtFree(desk->x) == 0);
    CHECK(aclrtFree(desk->y) == 0);
}

/* y must be factor * relu(x) */
static void desk_check(Desk *desk, float factor)
{
    float y[COUNT];
    CHECK(aclrtSynchronizeStream(desk->stream) == 0);
    CHECK(aclrtMemcpy(y, sizeof y, desk->y, sizeof y, ACL_MEMCPY_DEVICE_TO_HOST) == 0);
    for (int i = 0; i < COUNT; i++) {
        float x = (float)(i - COUNT / 2), expected = x > 0 ? factor * x : 0.0F;
        CHECK(y[i] <= expected && y[i] >= expected);
    }
}

static void model_run(Desk *desk, uint32_t model)
{
    aclmdlDataset *input = aclmdlCreateDataset(), *output = aclmdlCreateDataset();
    CHECK(aclmdlAddDatasetBuffer(input, desk->in) == 0);
    CHECK(aclmdlAddDatasetBuffer(output, desk->out) == 0);
    CHECK(aclmdlSetDatasetTensorDesc(input, desk->desc, 0) == 0);
    CHECK(aclmdlExecuteAsync(model, input, output, desk->stream) == 0);
    CHECK(aclmdlDestroyDataset(input) == 0);
    CHECK(aclmdlDestroyDataset(output) == 0);
}

static void *run_models(void *argument)
{
    Bytes file = model_make();
    Desk desk = desk_make();
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t own;
        model_run(&desk, shared_model);
        CHECK(aclmdlLoadFromMem(file.data, file.used, &own) == 0);
        model_run(&desk, own);
        CHECK(aclmdlUnload(own) == 0); /* with its work still queued */
        desk_check(&desk, -1.0F);
    }
    desk_clear(&desk);
    return NULL;
}

static void *run_operators(void *argument)
{
    Desk desk = desk_make();
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        void *args = desk.y;
        aclopAttr *attr = aclopCreateAttr();
        CHECK(aclopSetAttrInt(attr, "_unused", i) == 0);
        CHECK(aclopExecuteV2("Relu", 1, &desk.desc, &desk.in, 1, &desk.desc, &desk.out, attr,
                             desk.stream) == 0);
        aclopDestroyAttr(attr);
        CHECK(aclrtLaunchKernelWithHostArgs(kernel, 3, desk.stream, NULL, &args, sizeof args, NULL,
                                            0) == 0);
        desk_check(&desk, 2.0F);
    }
    desk_clear(&desk);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    aclrtBinHandle binary;
    Bytes file = model_make();
    CHECK(aclInit(NULL) == 0);
    CHECK(aclrtSetDevice(0) == 0);
    CHECK(aclrtGetCurrentContext(&context) == 0);
    CHECK(aclmdlLoadFromMem(file.data, file.used, &shared_model) == 0);
    CHECK(acl_sim_kernel_make("double", kernel_double, NULL, &binary, &kernel) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, i % 2 == 0 ? run_models : run_operators, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(aclmdlUnload(shared_model) == 0);
    CHECK(aclrtBinaryUnLoad(binary) == 0);
    CHECK(aclrtResetDevice(0) == 0);
    CHECK(aclFinalize() == 0);
    return 0;
}
