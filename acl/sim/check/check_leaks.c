/* check_leaks.c: stores which calls made and destroyed each handle, and reports uses of destroyed handles, and leaks.
 *
 * The entry of a destroyed handle is kept until its slot is used again, so that the report of a late use can say
 * which call destroyed the handle.  An object counts as a leak only if it was made by a function whose purpose is to
 * make such objects (the table `makers`); objects that the simulator makes for itself do not count.
 *
 * Thread rule: one lock guards the table; no other lock is taken while it is held. */
#include "check/checker.h"
#include "races/race_inside.h"
#include "streams/device.h"
#include "streams/stream.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096 };

typedef struct Entry {
    struct Entry *next;
    const void *handle;
    HandleKind kind;
    int32_t device; /* the device of the context that was current when the object was made; -1: no context */
    const char *made_by, *gone_by; /* the functions that made and destroyed it; gone_by is NULL while it is live */
    const RaceSite *made, *gone;
    uint64_t gone_call; /* check_call_number() of the call that destroyed it; valid if gone_by is not NULL */
    bool told;          /* not to be reported as a leak: it was reported, or was made before a fork */
} Entry;

FILE_LOCK(entries_lock);
static Entry *entries[BUCKETS];
static atomic_bool finalized; /* the program itself has called aclFinalize */

/* For each kind of object that the program has to destroy: a text that occurs in the names of the functions that make
 * such an object. NULL for all other kinds. */
static const char *const makers[HANDLE_KINDS] = {
    [HANDLE_CONTEXT] = "CreateContext",
    [HANDLE_STREAM] = "CreateStream",
    [HANDLE_EVENT] = "CreateEvent",
    [HANDLE_NOTIFY] = "Notify",
    [HANDLE_CNT_NOTIFY] = "Notify",
    [HANDLE_LABEL] = "CreateLabel",
    [HANDLE_LABEL_LIST] = "CreateLabelList",
    [HANDLE_MODEL_RI] = "aclmdlRI",
    [HANDLE_STREAM_CONFIG] = "CreateStreamConfigHandle",
    [HANDLE_PHYSICAL] = "MallocPhysical",
    [HANDLE_MEM_POOL] = "MemPoolCreate",
    [HANDLE_ALLOCATOR_DESC] = "AllocatorCreateDesc",
    [HANDLE_DATA_BUFFER] = "CreateDataBuffer",
    [HANDLE_GROUP_INFO] = "CreateGroupInfo",
    [HANDLE_BINARY] = "BinaryLoad",
    [HANDLE_TENSOR_DESC] = "CreateTensorDesc",
    [HANDLE_DATASET] = "CreateDataset",
    [HANDLE_MODEL_DESC] = "aclmdlCreateDesc",
    [HANDLE_MODEL] = "aclmdlLoad",
    [HANDLE_MODEL_CONFIG] = "CreateConfigHandle",
    [HANDLE_EXEC_CONFIG] = "CreateExecConfigHandle",
    [HANDLE_AIPP] = "CreateAIPP",
    [HANDLE_OP_ATTR] = "CreateAttr",
    [HANDLE_OP] = "aclopCreateHandle",
    [HANDLE_PROFILER] = "CreateConfig",
    [HANDLE_TDT] = "acltdtCreate",
};

static Entry **bucket_of(const void *handle)
{
    uint64_t mixed = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
    return &entries[mixed >> 52];
}

/* Returns the entry of a handle, or NULL; the lock is held. */
static Entry *entry_find(const void *handle)
{
    Entry *entry = *bucket_of(handle);
    while (entry != NULL && entry->handle != handle) {
        entry = entry->next;
    }
    return entry;
}

static Entry *entry_make(const void *handle)
{
    Entry *entry = entry_find(handle);
    if (entry == NULL) {
        entry = calloc(1, sizeof *entry);
        if (entry != NULL) {
            entry->next = *bucket_of(handle);
            *bucket_of(handle) = entry;
        }
    }
    return entry;
}

void check_handle_made(const void *handle, HandleKind kind)
{
    const RaceSite *site = site_here();
    const Context *context = context_current();
    pthread_mutex_lock(&entries_lock);
    Entry *entry = entry_make(handle);
    if (entry != NULL) {
        *entry = (Entry){.next = entry->next, .handle = handle, .kind = kind,
                         .device = context != NULL ? context->device : -1,
                         .made_by = check_call(), .made = site};
    }
    pthread_mutex_unlock(&entries_lock);
}

void check_handle_gone(const void *handle)
{
    const RaceSite *site = site_here();
    pthread_mutex_lock(&entries_lock);
    Entry *entry = entry_find(handle);
    if (entry != NULL && entry->gone_by == NULL) {
        entry->gone_by = check_call();
        entry->gone = site;
        entry->gone_call = check_call_number();
    }
    pthread_mutex_unlock(&entries_lock);
}

static bool entry_get(const void *handle, Entry *entry)
{
    pthread_mutex_lock(&entries_lock);
    const Entry *found = entry_find(handle);
    if (found != NULL) {
        *entry = *found;
    }
    pthread_mutex_unlock(&entries_lock);
    return found != NULL;
}

/* ---- use after the end --------------------------------------------------------------------------- */

static void dead_tell(const char *function, const char *argument, const Entry *entry)
{
    CheckReport report = check_begin(CHECK_MEM, "use-after-destroy", "%s: %s = %p, of kind %s, was "
                                     "destroyed before", function, argument, entry->handle,
                                     handle_kind_name(entry->kind));
    check_place(&report, site_here(), "%s", function);
    check_place(&report, entry->gone, "destroyed by %s", entry->gone_by);
    check_place(&report, entry->made, "made by %s", entry->made_by);
    check_tell(&report);
}

/* Calls of aclrtAllocator* are not checked: they accept any value as a stream. */
void check_arguments(const char *function, const char *names, va_list values)
{
    if (strncmp(function, "aclrtAllocator", 14) == 0) {
        return;
    }
    while (*names != '\0') {
        size_t length = strcspn(names, ":");
        char sort = names[length + 1], argument[64];
        snprintf(argument, sizeof argument, "%.*s", (int)length, names);
        Entry entry;
        const void *pointer = NULL;
        if (sort == 'p') {
            pointer = va_arg(values, const void *);
        } else if (sort == 'd') {
            (void)va_arg(values, double);
        } else {
            (void)va_arg(values, uint64_t);
        }
        if (pointer != NULL && entry_get(pointer, &entry) && entry.gone_by != NULL &&
            entry.gone_call != check_call_number()) {
            dead_tell(function, argument, &entry);
        }
        names += strcspn(names, " ");
        names += *names == ' ';
    }
}

void check_destroyed_in_use(const void *handle, HandleKind kind)
{
    Entry entry;
    if (!entry_get(handle, &entry)) {
        return;
    }
    CheckReport report = check_begin(CHECK_ORDER, "destroyed-in-use", "%s: the %s %p is destroyed "
                                     "while tasks that are queued use it", check_call(),
                                     handle_kind_name(kind), handle);
    check_place(&report, site_here(), "%s", check_call());
    check_place(&report, entry.made, "made by %s", entry.made_by);
    check_tell(&report);
}

/* ---- leaks --------------------------------------------------------------------------------------- */

/* True if the entry is a leak that was not reported yet, of that device (-1: any device) and, if `only_streams`, a
 * stream. */
static bool is_leak(const Entry *entry, int32_t device, bool only_streams)
{
    return entry->gone_by == NULL && !entry->told && makers[entry->kind] != NULL &&
           strstr(entry->made_by, makers[entry->kind]) != NULL &&
           (device == -1 || entry->device == device) &&
           (!only_streams || entry->kind == HANDLE_STREAM);
}

/* Finds all leaked objects of one kind that were made at one place in the program: gives the first one and their
 * number, and marks them as reported. False if there are no leaks that were not reported. */
static bool leak_take(Entry *first, size_t *count, int32_t device, bool only_streams)
{
    *count = 0;
    pthread_mutex_lock(&entries_lock);
    for (size_t i = 0; i < BUCKETS; i++) {
        for (Entry *entry = entries[i]; entry != NULL; entry = entry->next) {
            if (is_leak(entry, device, only_streams) &&
                (*count == 0 || (entry->made == first->made && entry->kind == first->kind &&
                                 entry->made_by == first->made_by))) {
                *first = *count == 0 ? *entry : *first;
                entry->told = true;
                *count += 1;
            }
        }
    }
    pthread_mutex_unlock(&entries_lock);
    return *count != 0;
}

static void handles_tell(int32_t device, bool only_streams, const char *when)
{
    Entry entry = {0};
    size_t count;
    while (leak_take(&entry, &count, device, only_streams)) {
        CheckReport report = check_begin(CHECK_LEAK, "leak", "%zu %s%s not destroyed %s", count,
                                         handle_kind_name(entry.kind), count == 1 ? "" : "s", when);
        check_place(&report, entry.made, "made by %s", entry.made_by);
        check_tell(&report);
    }
}

void check_forget_parent(void)
{
    check_forget_blocks();
    for (size_t i = 0; i < BUCKETS; i++) {
        for (Entry *entry = entries[i]; entry != NULL; entry = entry->next) {
            entry->told = true;
        }
    }
}

static const void *interpreter(void)
{
    return dlsym(RTLD_DEFAULT, "Py_IsInitialized");
}

/* True if the frame is the interpreter's or an extension module's: a library that has PyInit_NAME for its own name. */
static bool is_python(const Dl_info *frame)
{
    Dl_info python;
    const char *slash = strrchr(frame->dli_fname, '/');
    const char *file = slash != NULL ? slash + 1 : frame->dli_fname;
    char symbol[256];
    snprintf(symbol, sizeof symbol, "PyInit_%.*s", (int)strcspn(file, "."), file);
    if (dladdr(interpreter(), &python) != 0 && python.dli_fbase == frame->dli_fbase) {
        return true;
    }
    void *library = dlopen(frame->dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    bool found = library != NULL && dlsym(library, symbol) != NULL;
    if (library != NULL) {
        dlclose(library);
    }
    return found;
}

/* True if the program made the current call, and not a framework's library in a process with Python: such a library calls
 * when the interpreter ends, while Python still holds objects. ctypes calls through libffi. */
static bool called_by_program(void)
{
    const RaceSite *site = interpreter() != NULL ? site_of_stack() : NULL;
    Dl_info frame = {0};
    for (int i = 0; site != NULL && i < site->depth; i++) {
        if (dladdr(site->at[i], &frame) == 0 || strstr(frame.dli_fname, "/libffi") == NULL) {
            break;
        }
    }
    return interpreter() == NULL || (frame.dli_fname != NULL && is_python(&frame));
}

void check_leaks_of_device(int32_t device)
{
    if (!called_by_program()) {
        return;
    }
    char when[64];
    snprintf(when, sizeof when, "at the last reset of device %d", device);
    handles_tell(device, true, when);
}

void check_finalized(void)
{
    if (strcmp(check_call(), "aclFinalize") == 0 && called_by_program()) {
        atomic_store(&finalized, true);
    }
}

/* Reports streams with tasks that have not run. Such tasks are lost at the end of the process. */
static void unfinished_tell(const char *when)
{
    for (Stream *stream = NULL; (stream = handle_next_held(HANDLE_STREAM, stream)) != NULL;) {
        uint64_t done = atomic_load(&stream->completed), left = atomic_load(&stream->submitted) - done;
        Entry entry;
        if (left == 0 || !entry_get(stream, &entry)) {
            continue;
        }
        CheckReport report = check_begin(CHECK_LEAK, "unfinished", "%llu task%s of stream %u of device %d "
                                         "not done %s", (unsigned long long)left, left == 1 ? "" : "s",
                                         stream->id, stream->device, when);
        check_place(&report, entry.made, "the stream was made by %s", entry.made_by);
        check_tell(&report);
    }
}

void check_leaks_of_process(void)
{
    static const char when[] = "at the end of the process";
    if (interpreter() == NULL || atomic_load(&finalized)) {
        unfinished_tell(when);
        handles_tell(-1, false, when);
        check_leaks_of_blocks(when);
    }
}
