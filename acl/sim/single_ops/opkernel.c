/* opkernel.c: the user's own operators, with a compile function that chooses a kernel for the shapes.

   aclopUpdateParams calls the compile function of the operator type with a new description of a launch, which is
   valid during that call only. What the function sets is kept for these inputs, outputs and attributes
   (kernel_cache.c). aclopExecuteV2 then launches the kernel. Its arguments are the addresses of inputs, outputs
   and workspaces, then the bytes that the compile function gave. The lock protects the lists and is not held
   while a user's function runs. */
#include <stdlib.h>
#include <string.h>

#include "tensors/databuffer.h"
#include "generated/exports.h"
#include "single_ops/opapi.h"
#include "single_ops/kernel_cache.h"

enum { WORKSPACES_MAX = 16 };

typedef struct Selector {
    struct Selector *next;
    char *type;
    aclopCompileFunc function;
} Selector;

typedef struct UserKernel {
    struct UserKernel *next;
    char *type, *id;
    aclrtBinHandle binary;
    aclrtFuncHandle function;
} UserKernel;

FILE_LOCK(lock);
static Selector *selectors;
static UserKernel *kernels;

/* --- compile functions --- */

static Selector **selector_find(const char *type)
{
    Selector **link = &selectors;
    while (*link != NULL && strcmp((*link)->type, type) != 0) {
        link = &(*link)->next;
    }
    return link;
}

bool opkernel_registered(const char *type)
{
    pthread_mutex_lock(&lock);
    bool found = *selector_find(type) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

aclError sim_aclopRegisterCompileFunc(const char *opType, aclopCompileFunc func)
{
    REQUIRE(opType);
    REQUIRE(func);
    Selector *made = malloc(sizeof *made);
    char *copy = strdup(opType);
    if (made == NULL || copy == NULL) {
        free(made);
        free(copy);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    *made = (Selector){NULL, copy, func};
    pthread_mutex_lock(&lock);
    Selector **place = selector_find(opType);
    bool taken = *place != NULL;
    if (!taken) {
        *place = made;
    }
    pthread_mutex_unlock(&lock);
    if (taken) {
        free(copy);
        free(made);
        return fail(
            ACL_ERROR_BIN_SELECTOR_ALREADY_REGISTERED, "%s has a compile function already", opType);
    }
    return ACL_SUCCESS;
}

aclError sim_aclopUnregisterCompileFunc(const char *opType)
{
    REQUIRE(opType);
    pthread_mutex_lock(&lock);
    Selector **place = selector_find(opType);
    Selector *found = *place;
    if (found != NULL) {
        *place = found->next;
    }
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        return fail(ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED, "%s has no compile function", opType);
    }
    free(found->type);
    free(found);
    return ACL_SUCCESS;
}

/* --- kernels --- */

static UserKernel *kernel_find(const char *type, const char *id)
{
    UserKernel *kernel = kernels;
    while (kernel != NULL && (strcmp(kernel->type, type) != 0 || strcmp(kernel->id, id) != 0)) {
        kernel = kernel->next;
    }
    return kernel;
}

static bool kernel_known(const char *type, const char *id)
{
    pthread_mutex_lock(&lock);
    bool known = kernel_find(type, id) != NULL;
    pthread_mutex_unlock(&lock);
    return known;
}

static void kernel_free(UserKernel *kernel)
{
    free(kernel->type);
    free(kernel->id);
    free(kernel);
}

/* Makes the record of a user's kernel. Returns NULL if there is no host memory. */
static UserKernel *kernel_new(
    const char *type, const char *id, aclrtBinHandle binary, aclrtFuncHandle function)
{
    UserKernel *kernel = malloc(sizeof *kernel);
    if (kernel != NULL) {
        *kernel = (UserKernel){NULL, strdup(type), strdup(id), binary, function};
        if (kernel->type == NULL || kernel->id == NULL) {
            kernel_free(kernel);
            return NULL;
        }
    }
    return kernel;
}

static aclError kernel_keep(
    const char *type, const char *id, aclrtBinHandle binary, aclrtFuncHandle function)
{
    UserKernel *kernel = kernel_new(type, id, binary, function);
    if (kernel == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    pthread_mutex_lock(&lock);
    bool taken = kernel_find(type, id) != NULL;
    if (!taken) {
        kernel->next = kernels;
        kernels = kernel;
    }
    pthread_mutex_unlock(&lock);
    if (taken) {
        kernel_free(kernel);
        return fail(ACL_ERROR_KERNEL_ALREADY_REGISTERED, "%s has a kernel %s already", type, id);
    }
    return ACL_SUCCESS;
}

static aclError kernel_load(
    const char *type, const char *id, const char *name, const void *data, int size)
{
    aclrtBinHandle binary;
    aclrtFuncHandle function;
    TRY(sim_aclrtBinaryLoadFromData(data, (size_t)size, NULL, &binary));
    aclError status = sim_aclrtBinaryGetFunction(binary, name, &function);
    if (status == ACL_SUCCESS) {
        status = kernel_keep(type, id, binary, function);
    }
    if (status != ACL_SUCCESS) {
        (void)sim_aclrtBinaryUnLoad(binary);
    }
    return status;
}

/* Copies the kernel's bytes and calls the deallocator of the caller's bytes immediately. */
aclError sim_aclopCreateKernel(const char *opType, const char *kernelId, const char *kernelName,
    void *binData, int binSize, aclopEngineType enginetype, aclDataDeallocator deallocator)
{
    REQUIRE(opType);
    REQUIRE(kernelId);
    REQUIRE(kernelName);
    REQUIRE(binData);
    REQUIRE(binSize > 0);
    REQUIRE(enginetype >= ACL_ENGINE_SYS && enginetype <= ACL_ENGINE_VECTOR);
    if (kernel_known(opType, kernelId)) {
        return fail(
            ACL_ERROR_KERNEL_ALREADY_REGISTERED, "%s has a kernel %s already", opType, kernelId);
    }
    TRY(kernel_load(opType, kernelId, kernelName, binData, binSize));
    if (deallocator != NULL) {
        deallocator(binData, (size_t)binSize);
    }
    return ACL_SUCCESS;
}

/* --- what a compile function sets --- */

aclError sim_aclopSetKernelArgs(aclopKernelDesc *kernelDesc, const char *kernelId,
    uint32_t blockDim, const void *args, uint32_t argSize)
{
    REQUIRE(handle_is(kernelDesc, HANDLE_KERNEL_DESC));
    REQUIRE(kernelId);
    REQUIRE(args);
    char *id = strdup(kernelId);
    void *copy = malloc((size_t)argSize + 1);
    if (id == NULL || copy == NULL) {
        free(id);
        free(copy);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for %u bytes of arguments", argSize);
    }
    memcpy(copy, args, argSize);
    free(kernelDesc->id);
    free(kernelDesc->args);
    kernelDesc->id = id;
    kernelDesc->blocks = blockDim;
    kernelDesc->args = copy;
    kernelDesc->args_size = argSize;
    return ACL_SUCCESS;
}

/* Appends to the sizes that earlier calls set. */
aclError sim_aclopSetKernelWorkspaceSizes(
    aclopKernelDesc *kernelDesc, int numWorkspaces, size_t *workspaceSizes)
{
    REQUIRE(handle_is(kernelDesc, HANDLE_KERNEL_DESC));
    REQUIRE(numWorkspaces >= 0);
    REQUIRE(numWorkspaces == 0 || workspaceSizes != NULL);
    size_t have = (size_t)kernelDesc->workspace_count, more = (size_t)numWorkspaces;
    size_t *grown = realloc(kernelDesc->workspaces, (have + more + 1) * sizeof *grown);
    if (grown == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for %d workspaces", numWorkspaces);
    }
    if (more > 0) {
        memcpy(grown + have, workspaceSizes, more * sizeof *grown);
    }
    kernelDesc->workspaces = grown;
    kernelDesc->workspace_count += numWorkspaces;
    return ACL_SUCCESS;
}

/* --- choosing --- */

static aclError forms_read(int inputs, const aclTensorDesc *const *in, int outputs,
    const aclTensorDesc *const *out, Tensor **tensors)
{
    Tensor *forms = calloc((size_t)inputs + (size_t)outputs + 1, sizeof *forms);
    aclError status = forms == NULL ? fail(ACL_ERROR_BAD_ALLOC, "no host memory") : ACL_SUCCESS;
    for (int i = 0; i < inputs + outputs && status == ACL_SUCCESS; i++) {
        const aclTensorDesc *desc = i < inputs ? in[i] : out[i - inputs];
        status = handle_is(desc, HANDLE_TENSOR_DESC)
            ? tensordesc_read(desc, i < inputs ? "an input" : "an output", &forms[i])
            : fail(ACL_ERROR_INVALID_PARAM, "description %d is not a live description", i);
    }
    if (status != ACL_SUCCESS) {
        free(forms);
        return status;
    }
    *tensors = forms;
    return ACL_SUCCESS;
}

static aclError selector_call(aclopCompileFunc function, Choice *choice,
    const aclTensorDesc *const *in, const aclTensorDesc *const *out, const aclopAttr *attr)
{
    aclopKernelDesc *desc = handle_new(HANDLE_KERNEL_DESC, sizeof *desc);
    if (desc == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no memory for a kernel description");
    }
    desc->type = choice->type;
    aclError status = function(choice->input_count, in, choice->output_count, out, attr, desc);
    (void)handle_kill(desc);
    choice->launch = *desc;
    *desc = (struct aclopKernelDesc){0};
    handle_retire(desc);
    if (status != ACL_SUCCESS) {
        return status;
    }
    return choice->launch.id != NULL && kernel_known(choice->type, choice->launch.id)
        ? ACL_SUCCESS
        : fail(ACL_ERROR_KERNEL_NOT_FOUND, "%s has no kernel %s (aclopCreateKernel)", choice->type,
              choice->launch.id == NULL ? "chosen by aclopSetKernelArgs" : choice->launch.id);
}

aclError sim_aclopUpdateParams(const char *opType, int numInputs,
    const aclTensorDesc *const inputDesc[], int numOutputs, const aclTensorDesc *const outputDesc[],
    const aclopAttr *attr)
{
    REQUIRE(opType);
    REQUIRE(numInputs >= 0 && (numInputs == 0 || inputDesc != NULL));
    REQUIRE(numOutputs >= 0 && (numOutputs == 0 || outputDesc != NULL));
    pthread_mutex_lock(&lock);
    const Selector *selector = *selector_find(opType);
    aclopCompileFunc function = selector == NULL ? NULL : selector->function;
    pthread_mutex_unlock(&lock);
    if (function == NULL) {
        return fail(ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED, "%s has no compile function", opType);
    }
    Choice *choice = calloc(1, sizeof *choice);
    if (choice == NULL || (choice->type = strdup(opType)) == NULL) {
        free(choice);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    choice->input_count = numInputs;
    choice->output_count = numOutputs;
    aclError status = forms_read(numInputs, inputDesc, numOutputs, outputDesc, &choice->tensors);
    status = status == ACL_SUCCESS ? attrs_take(attr, &choice->attrs) : status;
    status = status == ACL_SUCCESS ? selector_call(function, choice, inputDesc, outputDesc, attr)
                                   : status;
    if (status != ACL_SUCCESS) {
        choice_free(choice);
        return status;
    }
    if (!choice_keep(choice)) {
        choice_free(choice);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a choice");
    }
    return ACL_SUCCESS;
}

/* --- launching --- */

/* Places the workspaces in one block. As in CANN, the offset grows by each rounded size twice,
   which leaves a gap behind each workspace. */
static aclError workspaces_place(
    const struct aclopKernelDesc *launch, Stream *stream, void **addresses, StreamMemory **memory)
{
    size_t total = 0, places[WORKSPACES_MAX];
    if (launch->workspace_count > WORKSPACES_MAX) {
        return fail(ACL_ERROR_INVALID_PARAM, "%d workspaces; at most %d can be launched",
            launch->workspace_count, (int)WORKSPACES_MAX);
    }
    for (int i = 0; i < launch->workspace_count; i++) {
        size_t size = launch->workspaces[i];
        places[i] = total;
        if (size > SIZE_MAX / 4
            || __builtin_add_overflow(total, 2 * tensor_padded(size), &total)) {
            return fail(
                ACL_ERROR_INVALID_PARAM, "workspace %d of %zu bytes is too large", i, size);
        }
    }
    void *base = NULL;
    if (total > 0) {
        TRY(opsource_workspace_take(stream, total, memory, &base));
    }
    for (int i = 0; i < launch->workspace_count; i++) {
        addresses[i] = (char *)base + places[i];
    }
    return ACL_SUCCESS;
}

static aclError choice_queue(
    const Choice *choice, const OpEnds *ends, Stream *stream, void *const *workspaces)
{
    const struct aclopKernelDesc *launch = &choice->launch;
    size_t pointers = (size_t)(ends->input_count + ends->output_count + launch->workspace_count);
    char *args = malloc(pointers * sizeof(void *) + launch->args_size + 1);
    if (args == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for arguments");
    }
    size_t at = 0;
    for (int i = 0; i < ends->input_count + ends->output_count; i++, at += sizeof(void *)) {
        const aclDataBuffer *buffer =
            i < ends->input_count ? ends->inputs[i] : ends->outputs[i - ends->input_count];
        memcpy(args + at, &buffer->address, sizeof(void *));
    }
    for (int i = 0; i < launch->workspace_count; i++, at += sizeof(void *)) {
        memcpy(args + at, &workspaces[i], sizeof(void *));
    }
    memcpy(args + at, launch->args, launch->args_size);
    pthread_mutex_lock(&lock);
    const UserKernel *kernel = kernel_find(choice->type, launch->id);
    aclrtFuncHandle function = kernel == NULL ? NULL : kernel->function;
    pthread_mutex_unlock(&lock);
    aclError status = function == NULL
        ? fail(ACL_ERROR_KERNEL_NOT_FOUND, "%s has no kernel %s", choice->type, launch->id)
        : sim_aclrtLaunchKernelWithHostArgs(
              function, launch->blocks, stream, NULL, args, at + launch->args_size, NULL, 0);
    free(args);
    return status;
}

static aclError choice_launch(const Choice *choice, const OpEnds *ends, Stream *stream)
{
    void *workspaces[WORKSPACES_MAX];
    StreamMemory *memory = NULL;
    TRY(workspaces_place(&choice->launch, stream, workspaces, &memory));
    aclError status = choice_queue(choice, ends, stream, workspaces);
    if (memory != NULL) {
        opsource_workspace_leave(memory);
    }
    return status;
}

static aclError buffers_check(const OpEnds *ends)
{
    for (int i = 0; i < ends->input_count + ends->output_count; i++) {
        const aclDataBuffer *buffer =
            i < ends->input_count ? ends->inputs[i] : ends->outputs[i - ends->input_count];
        REQUIRE(handle_is(buffer, HANDLE_DATA_BUFFER));
    }
    return ACL_SUCCESS;
}

aclError opkernel_execute(
    const char *type, const OpEnds *ends, const AttrSet *attrs, Stream *stream)
{
    Tensor *forms;
    Choice found = {0};
    TRY(buffers_check(ends));
    TRY(forms_read(ends->input_count, (const aclTensorDesc *const *)ends->input_descs,
        ends->output_count, (const aclTensorDesc *const *)ends->output_descs, &forms));
    const Form form = {type, ends->input_count, ends->output_count, forms, attrs};
    aclError status = choice_find(&form, &found);
    free(forms);
    if (status == ACL_SUCCESS) {
        status = choice_launch(&found, ends, stream);
    }
    launch_clear(&found.launch);
    free(found.type);
    return status;
}
