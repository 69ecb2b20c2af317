/* bundle.c: several models in one file (aclmdlBundle...): a tar archive of ONNX files; the models
   have the order of the archive.

   `tar cf both.om a.onnx b.onnx` makes one. Bundles and models are numbered by the same counter, so
   a bundle's number is never valid for a model. A bundle's models are loaded with it
   (aclmdlBundleLoad...) or one by one (aclmdlBundleInit..., aclmdlBundleLoadModel). Only the bundle
   unloads them; aclmdlUnload refuses them.

   Lock rule: bundles_lock is a leaf: no model is loaded or unloaded while it is held. Instead a
   call holds a reference to its bundle. If the bundle ends during the call, the call unloads the
   models that it has loaded. */
#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"
#include "models/model.h"

/* --- the archive --- */

enum { TAR_BLOCK = 512, TAR_NAME = 100, TAR_SIZE = 124, TAR_CHECKSUM = 148, TAR_TYPE = 156 };

typedef struct Member {
    char name[TAR_NAME + 1];
    const void *bytes;
    size_t length;
} Member;

typedef struct Archive {
    size_t count;
    Member *members;
} Archive;

/* Reads a number in octal digits after spaces; false if there is another character. */
static bool octal_read(const unsigned char *text, size_t room, size_t *value)
{
    size_t at = 0, digits = 0;
    while (at < room && text[at] == ' ') {
        at++;
    }
    for (*value = 0; at < room && text[at] >= '0' && text[at] <= '7'; at++, digits++) {
        *value = *value * 8 + (size_t)(text[at] - '0');
    }
    return digits > 0 && (at == room || text[at] == ' ' || text[at] == '\0');
}

/* True if the checksum that the tar header states is correct. The digits of the checksum itself count as spaces. */
static bool header_holds(const unsigned char *block)
{
    enum { DIGITS = 8 };
    size_t said, sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++) {
        sum += i >= TAR_CHECKSUM && i < TAR_CHECKSUM + DIGITS ? ' ' : block[i];
    }
    return octal_read(block + TAR_CHECKSUM, DIGITS, &said) && said == sum;
}

static bool block_is_empty(const unsigned char *block)
{
    static const unsigned char nothing[TAR_BLOCK];
    return memcmp(block, nothing, TAR_BLOCK) == 0;
}

static aclError archive_broken(const ModelFile *file, const char *what, size_t at)
{
    return fail(ACL_ERROR_PARSE_MODEL,
        "%s: expected a tar archive of ONNX files (tar cf bundle.om a.onnx b.onnx), found %s at "
        "byte %zu",
        file->path == NULL ? "the bundle" : file->path, what, at);
}

/* Counts the regular files, and lists them if `members` is not NULL. */
static aclError archive_walk(const ModelFile *file, size_t *count, Member *members)
{
    enum { SIZE_DIGITS = 12 };
    const unsigned char *bytes = file->bytes;
    *count = 0;
    for (size_t at = 0; at < file->length;) {
        const unsigned char *block = bytes + at;
        size_t length, left = file->length - at;
        if (left >= TAR_BLOCK && block_is_empty(block)) {
            return ACL_SUCCESS;
        }
        if (left < TAR_BLOCK || !header_holds(block)
            || !octal_read(block + TAR_SIZE, SIZE_DIGITS, &length)) {
            return archive_broken(file, "no header of one", at);
        }
        if (length > left - TAR_BLOCK) {
            return archive_broken(file, "a member that is cut short", at);
        }
        char type = (char)block[TAR_TYPE];
        if (type == '1' || type == '2') {
            return archive_broken(file, "a link (tar --dereference follows them)", at);
        }
        if (type == '0' || type == '\0') {
            if (members != NULL) {
                Member *member = &members[*count];
                memcpy(member->name, block, TAR_NAME);
                member->name[TAR_NAME] = '\0';
                member->bytes = block + TAR_BLOCK;
                member->length = length;
            }
            (*count)++;
        }
        size_t padded = (length + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
        at += TAR_BLOCK + (padded < left - TAR_BLOCK ? padded : left - TAR_BLOCK);
    }
    return ACL_SUCCESS;
}

/* Gives the members of the archive, which point into the file's bytes. */
static aclError archive_read(const ModelFile *file, Archive *archive)
{
    *archive = (Archive){0};
    TRY(archive_walk(file, &archive->count, NULL));
    if (archive->count == 0) {
        return archive_broken(file, "no file in it", file->length);
    }
    archive->members = calloc(archive->count, sizeof *archive->members);
    if (archive->members == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a bundle");
    }
    return archive_walk(file, &archive->count, archive->members);
}

static ModelFile member_file(const Member *member)
{
    return (ModelFile){
        .bytes = (void *)(uintptr_t)member->bytes, .length = member->length, .name = member->name};
}

/* --- bundles --- */

typedef struct Loaded {
    struct Loaded *next;
    size_t index;
    uint32_t model;
} Loaded;

typedef struct Bundle {
    struct Bundle *next;
    uint32_t id;
    int users;          /* calls that use it; guarded by bundles_lock, as are the fields below */
    bool gone;
    Loaded *loaded;     /* list of its loaded models, the newest first */
    size_t count;
    Archive archive;    /* the members of the archive in `bytes` */
    void *bytes;        /* copy of the file, for models that are loaded one by one; NULL if all were loaded at once */
} Bundle;

FILE_LOCK(bundles_lock);
static Bundle *bundles;

static aclError bundle_unknown(uint32_t id)
{
    return fail(ACL_ERROR_INVALID_BUNDLE_MODEL_ID, "bundleId is %u, which is not a loaded bundle", id);
}

static aclError bundle_find(uint32_t id, Bundle **found)
{
    pthread_mutex_lock(&bundles_lock);
    Bundle *bundle = bundles;
    while (bundle != NULL && bundle->id != id) {
        bundle = bundle->next;
    }
    if (bundle != NULL) {
        bundle->users++;
    }
    pthread_mutex_unlock(&bundles_lock);
    *found = bundle;
    return bundle != NULL ? ACL_SUCCESS : bundle_unknown(id);
}

static void loaded_unload(Loaded *loaded)
{
    while (loaded != NULL) {
        Loaded *next = loaded->next;
        model_unload(loaded->model);
        free(loaded);
        loaded = next;
    }
}

/* Drops a reference; the last one frees a destroyed bundle. */
static void bundle_drop(Bundle *bundle)
{
    pthread_mutex_lock(&bundles_lock);
    bool last = --bundle->users == 0 && bundle->gone;
    pthread_mutex_unlock(&bundles_lock);
    if (last) {
        free(bundle->archive.members);
        free(bundle->bytes);
        free(bundle);
    }
}

/* Ends the bundle: no call finds it any more, and its models are unloaded. */
static void bundle_end(Bundle *bundle)
{
    pthread_mutex_lock(&bundles_lock);
    Bundle **link = &bundles;
    while (*link != NULL && *link != bundle) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = bundle->next;
    }
    Loaded *loaded = bundle->loaded;
    bundle->loaded = NULL;
    bundle->gone = true;
    pthread_mutex_unlock(&bundles_lock);
    loaded_unload(loaded);
}

static aclError member_load(
    Bundle *bundle, const Member *member, size_t index, const Memories *memories, uint32_t *id)
{
    ModelFile file = member_file(member);
    Loaded *loaded = malloc(sizeof *loaded);
    if (loaded == NULL) {
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a model of a bundle");
    }
    aclError status = model_load(&file, memories, true, id);
    if (status != ACL_SUCCESS) {
        free(loaded);
        return status;
    }
    *loaded = (Loaded){.index = index, .model = *id};
    pthread_mutex_lock(&bundles_lock);
    bool gone = bundle->gone;
    if (!gone) {
        loaded->next = bundle->loaded;
        bundle->loaded = loaded;
    }
    pthread_mutex_unlock(&bundles_lock);
    if (gone) {
        loaded_unload(loaded);
        return bundle_unknown(bundle->id);
    }
    return ACL_SUCCESS;
}

/* Loads all members (`at_once`), or copies the file so that they can be loaded later. */
static aclError bundle_fill(Bundle *bundle, const ModelFile *file, bool at_once)
{
    Archive archive;
    uint32_t id;
    ModelFile kept = *file;
    if (!at_once) {
        bundle->bytes = malloc(file->length);
        if (bundle->bytes == NULL) {
            return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a bundle of %zu bytes",
                file->length);
        }
        memcpy(bundle->bytes, file->bytes, file->length);
        kept.bytes = bundle->bytes;
    }
    aclError status = archive_read(&kept, &archive);
    bundle->count = archive.count;
    for (size_t i = 0; at_once && status == ACL_SUCCESS && i < archive.count; i++) {
        status = member_load(bundle, &archive.members[i], i, &(Memories){0}, &id);
    }
    if (at_once || status != ACL_SUCCESS) {
        free(archive.members);
    } else {
        bundle->archive = archive;
    }
    return status;
}

static aclError bundle_open(const ModelFile *file, bool at_once, uint32_t *id)
{
    Context *context;
    TRY(context_require(&context));
    Bundle *bundle = calloc(1, sizeof *bundle);
    if (bundle == NULL || !model_number(&bundle->id)) {
        free(bundle);
        return fail(ACL_ERROR_BAD_ALLOC, "no host memory for a bundle");
    }
    bundle->users = 1;
    aclError status = bundle_fill(bundle, file, at_once);
    if (status != ACL_SUCCESS) {
        bundle_end(bundle);
    } else {
        *id = bundle->id;
        pthread_mutex_lock(&bundles_lock);
        bundle->next = bundles;
        bundles = bundle;
        pthread_mutex_unlock(&bundles_lock);
    }
    bundle_drop(bundle);
    return status;
}

static aclError bundle_open_path(const char *path, bool at_once, uint32_t *id)
{
    ModelFile file;
    TRY(modelfile_open(path, &file));
    aclError status = bundle_open(&file, at_once, id);
    modelfile_close(&file);
    return status;
}

aclError sim_aclmdlBundleLoadFromFile(const char *modelPath, uint32_t *bundleId)
{
    REQUIRE(modelPath);
    REQUIRE(bundleId);
    return bundle_open_path(modelPath, true, bundleId);
}

aclError sim_aclmdlBundleLoadFromMem(const void *model, size_t modelSize, uint32_t *bundleId)
{
    REQUIRE(model);
    REQUIRE(modelSize > 0);
    REQUIRE(bundleId);
    ModelFile file = {.bytes = (void *)(uintptr_t)model, .length = modelSize};
    return bundle_open(&file, true, bundleId);
}

/* Opens a bundle. Any memory for shared variables is accepted, because ONNX has no variables that models share. */
aclError sim_aclmdlBundleInitFromFile(
    const char *modelPath, void *varWeightPtr, size_t varWeightSize, uint32_t *bundleId)
{
    REQUIRE(modelPath);
    REQUIRE(bundleId);
    (void)varWeightPtr;
    (void)varWeightSize;
    return bundle_open_path(modelPath, false, bundleId);
}

aclError sim_aclmdlBundleInitFromMem(const void *model, size_t modelSize, void *varWeightPtr,
    size_t varWeightSize, uint32_t *bundleId)
{
    REQUIRE(model);
    REQUIRE(modelSize > 0);
    REQUIRE(bundleId);
    (void)varWeightPtr;
    (void)varWeightSize;
    ModelFile file = {.bytes = (void *)(uintptr_t)model, .length = modelSize};
    return bundle_open(&file, false, bundleId);
}

aclError sim_aclmdlBundleUnload(uint32_t bundleId)
{
    Bundle *bundle;
    TRY(bundle_find(bundleId, &bundle));
    bundle_end(bundle);
    bundle_drop(bundle);
    return ACL_SUCCESS;
}

/* --- its models --- */

aclError sim_aclmdlBundleGetModelNum(uint32_t bundleId, size_t *modelNum)
{
    Bundle *bundle;
    REQUIRE(modelNum);
    TRY(bundle_find(bundleId, &bundle));
    *modelNum = bundle->count;
    bundle_drop(bundle);
    return ACL_SUCCESS;
}

static aclError index_check(const Bundle *bundle, size_t index)
{
    return index < bundle->count ? ACL_SUCCESS
        : fail(ACL_ERROR_INVALID_PARAM, "index %zu: bundle %u has %zu models", index, bundle->id,
              bundle->count);
}

aclError sim_aclmdlBundleGetModelId(uint32_t bundleId, size_t index, uint32_t *modelId)
{
    Bundle *bundle;
    REQUIRE(modelId);
    TRY(bundle_find(bundleId, &bundle));
    aclError status = index_check(bundle, index);
    if (status == ACL_SUCCESS) {
        pthread_mutex_lock(&bundles_lock);
        const Loaded *loaded = bundle->loaded;
        while (loaded != NULL && loaded->index != index) {
            loaded = loaded->next;
        }
        *modelId = loaded != NULL ? loaded->model : *modelId;
        pthread_mutex_unlock(&bundles_lock);
        if (loaded == NULL) {
            status = fail(ACL_ERROR_INVALID_PARAM, "model %zu of bundle %u is not loaded", index,
                bundleId);
        }
    }
    bundle_drop(bundle);
    return status;
}

aclError bundle_load(uint32_t id, size_t index, const Memories *memories, uint32_t *model)
{
    Bundle *bundle;
    TRY(bundle_find(id, &bundle));
    aclError status = index_check(bundle, index);
    if (status == ACL_SUCCESS && bundle->bytes == NULL) {
        status = fail(ACL_ERROR_INVALID_PARAM,
            "bundle %u was loaded with all its models: use aclmdlBundleInitFromFile to load single models", id);
    }
    if (status == ACL_SUCCESS) {
        status = member_load(bundle, &bundle->archive.members[index], index, memories, model);
    }
    bundle_drop(bundle);
    return status;
}

aclError sim_aclmdlBundleLoadModel(uint32_t bundleId, size_t index, uint32_t *modelId)
{
    REQUIRE(modelId);
    return bundle_load(bundleId, index, &(Memories){0}, modelId);
}

aclError sim_aclmdlBundleLoadModelWithMem(uint32_t bundleId, size_t index, void *workPtr,
    size_t workSize, void *weightPtr, size_t weightSize, uint32_t *modelId)
{
    REQUIRE(modelId);
    (void)workPtr;
    (void)workSize;
    return bundle_load(bundleId, index, &(Memories){weightPtr, weightSize}, modelId);
}

aclError sim_aclmdlBundleUnloadModel(uint32_t bundleId, uint32_t modelId)
{
    Bundle *bundle;
    TRY(bundle_find(bundleId, &bundle));
    pthread_mutex_lock(&bundles_lock);
    Loaded **link = &bundle->loaded;
    while (*link != NULL && (*link)->model != modelId) {
        link = &(*link)->next;
    }
    Loaded *loaded = *link;
    if (loaded != NULL) {
        *link = loaded->next;
        loaded->next = NULL;
    }
    pthread_mutex_unlock(&bundles_lock);
    loaded_unload(loaded);
    bundle_drop(bundle);
    return loaded != NULL ? ACL_SUCCESS
        : fail((aclError)ACL_ERROR_GE_EXEC_MODEL_ID_INVALID, "bundle %u has no model %u", bundleId,
              modelId);
}

/* --- the memory that a bundle needs, queried before it is loaded --- */

typedef struct Sizes {
    size_t work, weight;
} Sizes;

struct aclmdlBundleQueryInfo {
    size_t count;
    Sizes *sizes;
};

aclmdlBundleQueryInfo *sim_aclmdlBundleCreateQueryInfo(void)
{
    return handle_new(HANDLE_BUNDLE, sizeof(aclmdlBundleQueryInfo));
}

aclError sim_aclmdlBundleDestroyQueryInfo(aclmdlBundleQueryInfo *queryInfo)
{
    REQUIRE(handle_is(queryInfo, HANDLE_BUNDLE));
    free(queryInfo->sizes);
    handle_retire(queryInfo);
    return ACL_SUCCESS;
}

static aclError bundle_query(const ModelFile *file, aclmdlBundleQueryInfo *info)
{
    Archive archive;
    aclError status = archive_read(file, &archive);
    Sizes *sizes = status == ACL_SUCCESS ? calloc(archive.count, sizeof *sizes) : NULL;
    if (status == ACL_SUCCESS && sizes == NULL) {
        status = fail(ACL_ERROR_BAD_ALLOC, "no host memory");
    }
    for (size_t i = 0; status == ACL_SUCCESS && i < archive.count; i++) {
        ModelFile member = member_file(&archive.members[i]);
        status = model_sizes(&member, &sizes[i].work, &sizes[i].weight);
    }
    free(archive.members);
    if (status != ACL_SUCCESS) {
        free(sizes);
        return status;
    }
    free(info->sizes);
    info->sizes = sizes;
    info->count = archive.count;
    return ACL_SUCCESS;
}

aclError sim_aclmdlBundleQueryInfoFromFile(const char *fileName, aclmdlBundleQueryInfo *queryInfo)
{
    ModelFile file;
    REQUIRE(fileName);
    REQUIRE(handle_is(queryInfo, HANDLE_BUNDLE));
    TRY(modelfile_open(fileName, &file));
    aclError status = bundle_query(&file, queryInfo);
    modelfile_close(&file);
    return status;
}

aclError sim_aclmdlBundleQueryInfoFromMem(
    const void *model, size_t modelSize, aclmdlBundleQueryInfo *queryInfo)
{
    REQUIRE(model);
    REQUIRE(modelSize > 0);
    REQUIRE(handle_is(queryInfo, HANDLE_BUNDLE));
    ModelFile file = {.bytes = (void *)(uintptr_t)model, .length = modelSize};
    return bundle_query(&file, queryInfo);
}

aclError sim_aclmdlBundleGetQueryModelNum(
    const aclmdlBundleQueryInfo *queryInfo, size_t *modelNum)
{
    REQUIRE(handle_is(queryInfo, HANDLE_BUNDLE));
    REQUIRE(modelNum);
    *modelNum = queryInfo->count;
    return ACL_SUCCESS;
}

aclError sim_aclmdlBundleGetVarWeightSize(
    const aclmdlBundleQueryInfo *queryInfo, size_t *variableWeightSize)
{
    REQUIRE(handle_is(queryInfo, HANDLE_BUNDLE));
    REQUIRE(variableWeightSize);
    *variableWeightSize = 0;
    return ACL_SUCCESS;
}

aclError sim_aclmdlBundleGetSize(const aclmdlBundleQueryInfo *queryInfo, size_t index,
    size_t *workSize, size_t *constWeightSize)
{
    REQUIRE(handle_is(queryInfo, HANDLE_BUNDLE));
    REQUIRE(index < queryInfo->count);
    REQUIRE(workSize);
    REQUIRE(constWeightSize);
    *workSize = queryInfo->sizes[index].work;
    *constWeightSize = queryInfo->sizes[index].weight;
    return ACL_SUCCESS;
}
