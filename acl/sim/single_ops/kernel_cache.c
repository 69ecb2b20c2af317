/* kernel_cache.c: see kernel_cache.h.

   A hash table by form, and a list in the order of use: a lookup costs the same for any number of kernels, and
   beyond the limit of aclopSetMaxOpQueueNum the least recently used kernels are removed.  Without a limit all
   are kept, as the runtime keeps those that aclopUpdateParams chose.

   One leaf lock protects the table and the list. */
#include "single_ops/kernel_cache.h"

#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"

enum { BUCKETS_FIRST = 64 };

FILE_LOCK(lock);
static Choice **buckets;
static size_t bucket_count; /* a power of two, or 0 */
static size_t choice_count;
static Choice *newest, *oldest;
static uint64_t limit = UINT64_MAX;

/* --- forms --- */

static uint64_t hash_add(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x100000001b3u;
}

/* Hashes a form. Of the attributes only their number counts, because few forms differ in attributes alone. */
static uint64_t form_hash(const Form *form)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = form->type; *at != '\0'; at++) {
        hash = hash_add(hash, (unsigned char)*at);
    }
    hash = hash_add(hash, (uint64_t)form->input_count);
    hash = hash_add(hash, form->attrs == NULL ? 0 : (uint64_t)form->attrs->list.count);
    for (int i = 0; i < form->input_count + form->output_count; i++) {
        const Tensor *tensor = &form->tensors[i];
        hash = hash_add(hash, (uint64_t)tensor->type << 8 | (uint64_t)tensor->rank);
        for (int d = 0; d < tensor->rank; d++) {
            hash = hash_add(hash, (uint64_t)tensor->dims[d]);
        }
    }
    return hash ^ hash >> 32;
}

static bool form_is(const Choice *choice, const Form *form)
{
    if (strcmp(choice->type, form->type) != 0 || choice->input_count != form->input_count
        || choice->output_count != form->output_count) {
        return false;
    }
    for (int i = 0; i < form->input_count + form->output_count; i++) {
        if (choice->tensors[i].type != form->tensors[i].type
            || !tensor_same_shape(&choice->tensors[i], &form->tensors[i])) {
            return false;
        }
    }
    return attrs_equal(choice->attrs, form->attrs);
}

static Form choice_form(const Choice *choice)
{
    return (Form){choice->type, choice->input_count, choice->output_count, choice->tensors,
        choice->attrs};
}

/* --- life --- */

void launch_clear(struct aclopKernelDesc *launch)
{
    free(launch->id);
    free(launch->args);
    free(launch->workspaces);
    *launch = (struct aclopKernelDesc){0};
}

void choice_free(Choice *choice)
{
    launch_clear(&choice->launch);
    attrs_release(choice->attrs);
    free(choice->tensors);
    free(choice->type);
    free(choice);
}

/* --- table and list; the lock is held --- */

static Choice **bucket_of(uint64_t hash)
{
    return &buckets[hash & (bucket_count - 1)];
}

static void use_unlink(Choice *choice)
{
    *(choice->newer != NULL ? &choice->newer->older : &newest) = choice->older;
    *(choice->older != NULL ? &choice->older->newer : &oldest) = choice->newer;
}

static void use_link(Choice *choice)
{
    choice->newer = NULL;
    choice->older = newest;
    *(newest != NULL ? &newest->newer : &oldest) = choice;
    newest = choice;
}

/* Enlarges the table. Returns false only if there is no table at all; one that cannot grow is still used. */
static bool table_grow(void)
{
    if (choice_count < bucket_count) {
        return true;
    }
    size_t more = bucket_count == 0 ? BUCKETS_FIRST : 2 * bucket_count;
    Choice **wider = calloc(more, sizeof(Choice *));
    if (wider == NULL) {
        return bucket_count != 0;
    }
    free(buckets);
    buckets = wider;
    bucket_count = more;
    for (Choice *choice = newest; choice != NULL; choice = choice->older) {
        Choice **bucket = bucket_of(choice->hash);
        choice->next = *bucket;
        *bucket = choice;
    }
    return true;
}

static Choice *table_find(const Form *form, uint64_t hash)
{
    Choice *choice = bucket_count == 0 ? NULL : *bucket_of(hash);
    while (choice != NULL && (choice->hash != hash || !form_is(choice, form))) {
        choice = choice->next;
    }
    return choice;
}

/* Moves the kernel from the table to the caller's list. */
static void choice_remove(Choice *choice, Choice **removed)
{
    Choice **link = bucket_of(choice->hash);
    while (*link != choice) {
        link = &(*link)->next;
    }
    *link = choice->next;
    use_unlink(choice);
    choice_count--;
    choice->next = *removed;
    *removed = choice;
}

bool choice_keep(Choice *choice)
{
    Choice *removed = NULL;
    const Form form = choice_form(choice);
    choice->hash = form_hash(&form);
    pthread_mutex_lock(&lock);
    Choice *same = table_find(&form, choice->hash);
    if (same != NULL) {
        choice_remove(same, &removed);
    }
    bool kept = table_grow();
    if (kept) {
        Choice **bucket = bucket_of(choice->hash);
        choice->next = *bucket;
        *bucket = choice;
        use_link(choice);
        choice_count++;
    }
    while (choice_count > limit) {
        choice_remove(oldest, &removed);
    }
    pthread_mutex_unlock(&lock);
    while (removed != NULL) {
        Choice *next = removed->next;
        choice_free(removed);
        removed = next;
    }
    return kept;
}

/* --- finding --- */

static aclError choice_copy(const Choice *choice, Choice *out)
{
    size_t sizes = (size_t)choice->launch.workspace_count * sizeof(size_t);
    *out = *choice;
    out->type = strdup(choice->type);
    out->launch.id = strdup(choice->launch.id);
    out->launch.args = malloc(choice->launch.args_size + 1);
    out->launch.workspaces = malloc(sizes + 1);
    if (out->type == NULL || out->launch.id == NULL || out->launch.args == NULL
        || out->launch.workspaces == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    memcpy(out->launch.args, choice->launch.args, choice->launch.args_size);
    if (sizes > 0) {
        memcpy(out->launch.workspaces, choice->launch.workspaces, sizes);
    }
    return ACL_SUCCESS;
}

aclError choice_find(const Form *form, Choice *out)
{
    aclError status = ACL_SUCCESS;
    uint64_t hash = form_hash(form);
    pthread_mutex_lock(&lock);
    Choice *found = table_find(form, hash);
    if (found != NULL) {
        use_unlink(found);
        use_link(found);
        status = choice_copy(found, out);
    }
    pthread_mutex_unlock(&lock);
    return found != NULL ? status
                         : fail_quiet(ACL_ERROR_OP_NOT_FOUND,
                               "no kernel is stored for %s with these shapes: call aclopUpdateParams "
                               "again, or store more kernels by aclopSetMaxOpQueueNum",
                               form->type);
}

/* The limit takes effect with the next kernel that is chosen. */
aclError sim_aclopSetMaxOpQueueNum(uint64_t maxOpNum)
{
    REQUIRE(maxOpNum > 0);
    pthread_mutex_lock(&lock);
    limit = maxOpNum;
    pthread_mutex_unlock(&lock);
    return ACL_SUCCESS;
}
