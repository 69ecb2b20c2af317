/* oprecord.c: records of operators' runs, and aclprofGetOp...: reading them.

   Records are written to a pipe, so they have a fixed size; the names are kept here, under the record's number.
   As in the runtime, a name can be fetched once and is then dropped.  A name that is not fetched is dropped
   after NAMES_KEPT newer ones.

   Thread rule: the names are under one leaf mutex; records are the reader's own. */
#include "profiling/oprecord.h"

#include <stdlib.h>
#include <string.h>

#include "generated/exports.h"

enum { NAMES_KEPT = 1 << 17, SKIPPED = sizeof(uint32_t) };

typedef enum NameSort { NAME_TYPE, NAME_OWN, NAME_SORTS } NameSort;

typedef struct Names {
    uint64_t number;
    char *text[NAME_SORTS]; /* NULL: already fetched, or there was no host memory */
} Names;

FILE_LOCK(lock);
static Names *names; /* ring buffer: the names of record n are at index n % NAMES_KEPT */
static uint64_t last_number;

/* Returns the FNV-1a hash of the record's fields. */
static uint32_t record_sign(const OpRecord *record)
{
    uint32_t hash = 0x811c9dc5u;
    const unsigned char *bytes = (const unsigned char *)record;
    for (size_t i = SKIPPED; i < sizeof *record; i++) {
        hash = (hash ^ bytes[i]) * 0x01000193u;
    }
    return hash;
}

/* Stores both names under a new number, and drops the oldest names. Returns the number. */
static uint64_t names_keep(const char *type, const char *name)
{
    pthread_mutex_lock(&lock);
    if (names == NULL) {
        names = calloc(NAMES_KEPT, sizeof *names);
    }
    uint64_t number = ++last_number;
    if (names != NULL) {
        Names *place = &names[number % NAMES_KEPT];
        free(place->text[NAME_TYPE]);
        free(place->text[NAME_OWN]);
        *place = (Names){number, {strdup(type), strdup(name)}};
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void oprecord_make(const OpRun *run, OpRecord *record)
{
    *record = (OpRecord){
        .model = run->model,
        .flag = run->flag,
        .device = run->device,
        .number = names_keep(run->type, run->name),
        .begin_ns = (uint64_t)run->begin_ns,
        .end_ns = (uint64_t)run->end_ns,
    };
    record->signature = record_sign(record);
}

/* ---- reading --------------------------------------------------------------------------------- */

aclError sim_aclprofGetOpDescSize(size_t *opDescSize)
{
    REQUIRE(opDescSize);
    *opDescSize = sizeof(OpRecord);
    return ACL_SUCCESS;
}

/* Returns 100000 unless the bytes are whole records that the simulator wrote. */
static aclError records_check(const char *function, const void *data, size_t length)
{
    if (data == NULL) {
        return error_argument(function, ACL_ERROR_INVALID_PARAM, "opInfo");
    }
    if (length % sizeof(OpRecord) != 0) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
            "opInfoLen is %zu, expected a multiple of %zu", length, sizeof(OpRecord));
    }
    for (size_t i = 0; i < length / sizeof(OpRecord); i++) {
        OpRecord record;
        memcpy(&record, (const char *)data + i * sizeof record, sizeof record);
        if (record.signature != record_sign(&record)) {
            return error_set(function, ACL_ERROR_INVALID_PARAM,
                "part %zu of opInfo is not a record of an operator", i);
        }
    }
    return ACL_SUCCESS;
}

static aclError record_read(
    const char *function, const void *data, size_t length, uint32_t index, OpRecord *record)
{
    TRY(records_check(function, data, length));
    if (index >= length / sizeof *record) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
            "index is %u, expected less than %zu, the number of records", index,
            length / sizeof *record);
    }
    memcpy(record, (const char *)data + index * sizeof *record, sizeof *record);
    return ACL_SUCCESS;
}

aclError sim_aclprofGetOpNum(const void *opInfo, size_t opInfoLen, uint32_t *opNumber)
{
    REQUIRE(opNumber);
    TRY(records_check(__func__, opInfo, opInfoLen));
    *opNumber = (uint32_t)(opInfoLen / sizeof(OpRecord));
    return ACL_SUCCESS;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Returns where the name of a record is stored, or NULL. The caller holds the mutex. */
static char **name_find(const OpRecord *record, NameSort sort)
{
    Names *place = names == NULL ? NULL : &names[record->number % NAMES_KEPT];
    bool there = place != NULL && place->number == record->number && place->text[sort] != NULL;
    return there ? &place->text[sort] : NULL;
}

static aclError name_gone(const char *function)
{
    return error_set(function, ACL_ERROR_INVALID_PARAM,
        "the name is not stored: it was read before, or more than %d records were made since", (int)NAMES_KEPT);
}

static aclError name_length(const char *function, const void *data, size_t length, uint32_t index,
    NameSort sort, size_t *size)
{
    OpRecord record;
    TRY(record_read(function, data, length, index, &record));
    pthread_mutex_lock(&lock);
    char **name = name_find(&record, sort);
    size_t found = name == NULL ? 0 : strlen(*name) + 1;
    pthread_mutex_unlock(&lock);
    if (found == 0) {
        return name_gone(function);
    }
    *size = found;
    return ACL_SUCCESS;
}

/* Copies the name and drops it.  As in the runtime, a buffer without room for the terminating zero loses the
   last letter.  A shorter buffer is refused, and the name is kept. */
static aclError name_take(const char *function, const void *data, size_t length, uint32_t index,
    NameSort sort, char *to, size_t room)
{
    OpRecord record;
    TRY(record_read(function, data, length, index, &record));
    pthread_mutex_lock(&lock);
    char **name = name_find(&record, sort);
    size_t wanted = name == NULL ? 0 : strlen(*name);
    bool fits = name != NULL && wanted <= room;
    if (fits) {
        memcpy(to, *name, wanted);
        to[wanted < room ? wanted : room - 1] = '\0';
        to[room - 1] = '\0';
        free(*name);
        *name = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (wanted > room) {
        return error_set(function, ACL_ERROR_INVALID_PARAM,
            "the buffer has %zu bytes, the name needs %zu", room, wanted + 1);
    }
    return fits ? ACL_SUCCESS : name_gone(function);
}

aclError sim_aclprofGetOpTypeLen(
    const void *opInfo, size_t opInfoLen, uint32_t index, size_t *opTypeLen)
{
    REQUIRE(opTypeLen);
    return name_length(__func__, opInfo, opInfoLen, index, NAME_TYPE, opTypeLen);
}

aclError sim_aclprofGetOpType(
    const void *opInfo, size_t opInfoLen, uint32_t index, char *opType, size_t opTypeLen)
{
    REQUIRE(opType);
    REQUIRE(opTypeLen > 0);
    return name_take(__func__, opInfo, opInfoLen, index, NAME_TYPE, opType, opTypeLen);
}

aclError sim_aclprofGetOpNameLen(
    const void *opInfo, size_t opInfoLen, uint32_t index, size_t *opNameLen)
{
    REQUIRE(opNameLen);
    return name_length(__func__, opInfo, opInfoLen, index, NAME_OWN, opNameLen);
}

aclError sim_aclprofGetOpName(
    const void *opInfo, size_t opInfoLen, uint32_t index, char *opName, size_t opNameLen)
{
    REQUIRE(opName);
    REQUIRE(opNameLen > 0);
    return name_take(__func__, opInfo, opInfoLen, index, NAME_OWN, opName, opNameLen);
}

/* ---- numbers of a record; 0 if there is no such record ------------------------------------------ */

uint64_t sim_aclprofGetOpStart(const void *opInfo, size_t opInfoLen, uint32_t index)
{
    OpRecord record = {0};
    (void)record_read(__func__, opInfo, opInfoLen, index, &record);
    return record.begin_ns;
}

uint64_t sim_aclprofGetOpEnd(const void *opInfo, size_t opInfoLen, uint32_t index)
{
    OpRecord record = {0};
    (void)record_read(__func__, opInfo, opInfoLen, index, &record);
    return record.end_ns;
}

uint64_t sim_aclprofGetOpDuration(const void *opInfo, size_t opInfoLen, uint32_t index)
{
    OpRecord record = {0};
    (void)record_read(__func__, opInfo, opInfoLen, index, &record);
    return record.end_ns - record.begin_ns;
}

size_t sim_aclprofGetModelId(const void *opInfo, size_t opInfoLen, uint32_t index)
{
    OpRecord record;
    aclError status = record_read(__func__, opInfo, opInfoLen, index, &record);
    return status == ACL_SUCCESS ? record.model : (size_t)status;
}

aclprofSubscribeOpFlag sim_aclprofGetOpFlag(const void *opInfo, size_t opInfoLen, uint32_t index)
{
    OpRecord record = {.flag = ACL_SUBSCRIBE_NONE};
    (void)record_read(__func__, opInfo, opInfoLen, index, &record);
    return (aclprofSubscribeOpFlag)record.flag;
}

/* Fails for every record: the only attribute of the API concerns the threads of an operator, which
   the simulator does not have. */
const char *sim_aclprofGetOpAttriValue(
    const void *opInfo, size_t opInfoLen, uint32_t index, aclprofSubscribeOpAttri attri)
{
    OpRecord record;
    if (record_read(__func__, opInfo, opInfoLen, index, &record) == ACL_SUCCESS) {
        (void)fail(ACL_ERROR_INVALID_PARAM, "attri is %d: records of flag %u do not have this attribute",
            (int)attri, record.flag);
    }
    return NULL;
}
