/* modelfile.c: opening a model file; its kind is found from its bytes, not from its name.

   A model may say in its metadata (metadata_props) which gears it was made for, with the names of
   ATC's options: dynamic_batch_size "1,2,4", dynamic_image_size "224,224;448,448", dynamic_dims
   "1,128;8,256". Such a model takes one more input, ascend_mbatch_shape_data, as on a device. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/ort.h"
#include "base/proto.h"

/* Messages name the function that the user called, not the function here that found the error. */
#undef fail
#define fail(code, ...) error_set("aclmdlLoad", (code), __VA_ARGS__)

aclError modelfile_open(const char *path, ModelFile *file)
{
    struct stat about;
    *file = (ModelFile){.path = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        int reason = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return fail((aclError)ACL_ERROR_GE_EXEC_MODEL_PATH_INVALID,
            "the model %s cannot be opened: %s", path,
            fd < 0 ? strerror(reason) : "it is not a regular file");
    }
    file->length = (size_t)about.st_size;
    void *mapped =
        file->length == 0 ? MAP_FAILED : mmap(NULL, file->length, PROT_READ, MAP_PRIVATE, fd, 0);
    (void)close(fd);
    if (mapped == MAP_FAILED) {
        return fail((aclError)ACL_ERROR_GE_EXEC_MODEL_DATA_SIZE_INVALID,
            "the model %s has %zu bytes", path, file->length);
    }
    file->bytes = mapped;
    return ACL_SUCCESS;
}

void modelfile_close(ModelFile *file)
{
    if (file->path != NULL && file->bytes != NULL) {
        (void)munmap(file->bytes, file->length);
    }
    file->bytes = NULL;
}

/* --- gears --- */

/* Parses gears separated by semicolons, as in "1,2;3,4"; with `flat`, each number is a gear. */
static bool gears_parse(const char *text, bool flat, Gears *gears)
{
    int values = 0;
    gears->count = 0;
    for (;;) {
        char *end;
        int64_t value = strtoll(text, &end, 10);
        if (end == text || value < 1 || gears->count == GEARS_MAX || values == GEAR_VALUES_MAX) {
            return false;
        }
        gears->value[gears->count][values++] = value;
        if (flat || *end == ';' || *end == '\0') {
            if (gears->count > 0 && values != gears->values) {
                return false;
            }
            gears->values = values;
            gears->count++;
            values = 0;
        }
        if (*end == '\0') {
            return true;
        }
        text = end + 1;
    }
}

static bool property_read(const ProtoField *message, char *key, char *value, size_t room)
{
    Proto proto = proto_nested(message);
    ProtoField field;
    key[0] = value[0] = '\0';
    while (message->wire == 2 && proto_next(&proto, &field)) {
        char *to = field.number == 1 ? key : field.number == 2 ? value : NULL;
        if (to != NULL && field.wire == 2 && field.length < room) {
            memcpy(to, field.bytes, field.length);
            to[field.length] = '\0';
        }
    }
    return !proto.broken;
}

static aclError gears_read(const ModelFile *file, Gears *gears)
{
    static const char *const names[] = {
        [GEARS_BATCH] = "dynamic_batch_size",
        [GEARS_SIZE] = "dynamic_image_size",
        [GEARS_DIMS] = "dynamic_dims",
    };
    enum { ROOM = 4096, METADATA = 14 };
    char key[ROOM], value[ROOM];
    Proto proto = proto_open(file->bytes, file->length);
    ProtoField field;
    gears->kind = GEARS_NONE;
    while (proto_next(&proto, &field)) {
        if (field.number != METADATA || !property_read(&field, key, value, ROOM)) {
            continue;
        }
        for (int kind = GEARS_BATCH; kind <= GEARS_DIMS; kind++) {
            if (strcmp(key, names[kind]) != 0) {
                continue;
            }
            gears->kind = (GearKind)kind;
            if (!gears_parse(value, kind == GEARS_BATCH, gears)
                || (kind == GEARS_SIZE && gears->values != 2)) {
                return fail(ACL_ERROR_PARSE_MODEL, "the model's metadata %s is '%s'", key, value);
            }
        }
    }
    return ACL_SUCCESS;
}

/* Completes each gear of a dynamic_dims model: the file lists only the dynamic dimensions, the API
   compares all dimensions of all inputs. */
static aclError gears_expand(const Net *net, Gears *gears)
{
    for (int g = 0; gears->kind == GEARS_DIMS && g < gears->count; g++) {
        int64_t full[GEAR_VALUES_MAX];
        int used = 0, total = 0;
        for (int i = 0; i < net->input_count; i++) {
            const NetValue *value = &net->values[net->inputs[i]];
            for (int d = 0; d < value->rank && total < GEAR_VALUES_MAX; d++) {
                bool dynamic = value->dims[d] < 0 && used < gears->values;
                full[total++] = dynamic ? gears->value[g][used++] : value->dims[d];
            }
        }
        if (used != gears->values) {
            return fail(ACL_ERROR_PARSE_MODEL,
                "dynamic_dims has %d values in a gear, the inputs have %d dynamic "
                "dimensions",
                gears->values, used);
        }
        memcpy(gears->value[g], full, (size_t)total * sizeof full[0]);
        gears->values = g + 1 == gears->count ? total : gears->values;
    }
    return ACL_SUCCESS;
}

/* Reads ACL_SIM_ENGINE: "builtin" or "onnxruntime" allows only that engine; by default both are
   allowed, and the built-in one is tried first. */
static bool engine_allowed(const char *name)
{
    const char *asked = setting("ACL_SIM_ENGINE");
    return asked == NULL || asked[0] == '\0' || strcmp(asked, name) == 0;
}

static bool builtin_read(const ModelFile *file, Net *net)
{
    char folder[4096] = "";
    if (file->path != NULL) {
        (void)snprintf(folder, sizeof folder, "%s", file->path);
    }
    bool read =
        onnx_read(net, file->bytes, file->length, file->path == NULL ? NULL : dirname(folder));
    net->folded_max = FOLDED_MAX + (int64_t)file->length * FOLDED_RATIO;
    read = read && net_prepare(net);
    net->folder = NULL;
    return read;
}

aclError modelfile_parse(const ModelFile *file, Net *net, Gears *gears, struct OrtModel **ort)
{
    char first[NET_MESSAGE_ROOM] = "", second[OP_MESSAGE_ROOM] = "";
    const char *name = file->path != NULL ? file->path
        : file->name != NULL              ? file->name
                                          : "the model";
    *ort = NULL;
    memset(net, 0, sizeof *net);
    bool read = engine_allowed("builtin") && builtin_read(file, net);
    if (!read) {
        (void)snprintf(first, sizeof first, "%s", net->message);
        net_free(net);
        bool second_wanted =
            engine_allowed("onnxruntime") && onnx_recognise(file->bytes, file->length);
        read =
            second_wanted && ort_load(file->bytes, file->length, net, ort, second, sizeof second);
    }
    if (!read) {
        return fail(ACL_ERROR_PARSE_MODEL, "%s: %s%s%s", name, first,
            second[0] != '\0' && first[0] != '\0' ? "; " : "", second);
    }
    aclError status = gears_read(file, gears);
    status = status == ACL_SUCCESS ? gears_expand(net, gears) : status;
    if (status != ACL_SUCCESS) {
        ort_free(*ort);
        net_free(net);
    }
    return status;
}
