/* opfailure.c: aclmdlCreateAndGetOpDesc: which operator of a model the failed task belongs to.

   Exception callbacks ask this with the device, stream and task that they are given.  The newest FAILURES_KEPT
   failures are kept, so that a program may also ask after the callback.

   Thread rule: a note belongs to its thread until it is entered into the list, which has one leaf mutex. */
#include "tensors/opfailure.h"

#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "streams/exception.h"
#include "tensors/tensordesc.h"

enum { FAILURES_KEPT = 16 };

typedef struct Failure {
    int32_t device;
    uint32_t stream, task;
    char *name; /* NULL: this entry is not used */
    int inputs, outputs;
    Tensor *tensors;
} Failure;

FILE_LOCK(lock);
static Failure failures[FAILURES_KEPT];
static size_t next_failure;
static _Thread_local Failure noted;

static void failure_free(Failure *failure)
{
    free(failure->name);
    free(failure->tensors);
    *failure = (Failure){0};
}

void opfailure_note(const char *name, const Tensor *tensors, int inputs, int outputs)
{
    size_t count = (size_t)inputs + (size_t)outputs;
    failure_free(&noted);
    noted = (Failure){.name = strdup(name), .inputs = inputs, .outputs = outputs,
                      .tensors = malloc((count + 1) * sizeof(Tensor))};
    if (noted.name == NULL || noted.tensors == NULL) {
        failure_free(&noted);
        return;
    }
    memcpy(noted.tensors, tensors, count * sizeof *tensors);
}

/* Moves the failure that this thread noted into `failures`, with its device, stream and task. */
static void opfailure_settle(int32_t device, uint32_t stream, uint32_t task)
{
    if (noted.name == NULL) {
        return;
    }
    noted.device = device;
    noted.stream = stream;
    noted.task = task;
    pthread_mutex_lock(&lock);
    Failure *place = &failures[next_failure++ % FAILURES_KEPT];
    Failure old = *place;
    *place = noted;
    pthread_mutex_unlock(&lock);
    noted = (Failure){0};
    failure_free(&old);
}

__attribute__((constructor(104))) static void failures_watch(void)
{
    exception_noticed = opfailure_settle;
}

/* ---- querying --------------------------------------------------------------------------------- */

/* Copies the failure with these numbers; the caller frees the copy.  Returns false if there is none, or no host
   memory. */
static bool failure_find(uint32_t device, uint32_t stream, uint32_t task, Failure *out)
{
    const Failure *found = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < FAILURES_KEPT && found == NULL; i++) {
        const Failure *one = &failures[i];
        bool same = one->name != NULL && (uint32_t)one->device == device &&
                    one->stream == stream && one->task == task;
        found = same ? one : NULL;
    }
    if (found != NULL) {
        size_t count = (size_t)found->inputs + (size_t)found->outputs;
        *out = *found;
        out->name = strdup(found->name);
        out->tensors = malloc((count + 1) * sizeof(Tensor));
        if (out->tensors != NULL) {
            memcpy(out->tensors, found->tensors, count * sizeof(Tensor));
        }
    }
    pthread_mutex_unlock(&lock);
    return found != NULL && out->name != NULL && out->tensors != NULL;
}

/* Returns the first of a list of descriptions, one for each tensor; NULL if count is 0 or host memory is out. */
static aclTensorDesc *row_new(const Tensor *tensors, int count)
{
    aclTensorDesc *first = NULL;
    for (int i = count - 1; i >= 0; i--) {
        int rank = tensors[i].rank < 0 ? 0 : tensors[i].rank;
        aclTensorDesc *made =
            tensordesc_new(tensors[i].type, rank, tensors[i].dims, ACL_FORMAT_ND);
        if (made == NULL) {
            sim_aclDestroyTensorDesc(first);
            return NULL;
        }
        made->address = tensors[i].data;
        made->next = first;
        first = made;
    }
    return first;
}

aclError sim_aclmdlCreateAndGetOpDesc(uint32_t deviceId, uint32_t streamId, uint32_t taskId,
    char *opName, size_t opNameLen, aclTensorDesc **inputDesc, size_t *numInputs,
    aclTensorDesc **outputDesc, size_t *numOutputs)
{
    Failure found = {0};
    REQUIRE(opName);
    REQUIRE(inputDesc);
    REQUIRE(numInputs);
    REQUIRE(outputDesc);
    REQUIRE(numOutputs);
    aclError status = ACL_SUCCESS;
    if (!failure_find(deviceId, streamId, taskId, &found)) {
        status = fail(ACL_ERROR_FAILURE,
            "no operator of a model failed as task %u of stream %u on device %u", taskId, streamId,
            deviceId);
    } else if (strlen(found.name) >= opNameLen) {
        status = fail(ACL_ERROR_INVALID_PARAM, "opNameLen is %zu, the name has %zu bytes",
            opNameLen, strlen(found.name) + 1);
    } else {
        strcpy(opName, found.name);
        *inputDesc = row_new(found.tensors, found.inputs);
        *numInputs = (size_t)found.inputs;
        *outputDesc = row_new(found.tensors + found.inputs, found.outputs);
        *numOutputs = (size_t)found.outputs;
    }
    failure_free(&found);
    return status;
}
