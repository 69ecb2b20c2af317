/* An extension module in C that uses the pool through its table; it links against nothing. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>

#include "aclpool.h"
#include "worker.h"

static const AclPoolApi *api;

typedef struct Task {
    AclPoolArena *arena;
    long faults;
} Task;

static void *on_thread(void *argument)
{
    Task *task = argument;
    task->faults = worker_run(api, task->arena, 1000, 64, 200);
    task->faults += worker_free_twice(api, task->arena);
    return NULL;
}

/* threads(pool, streams) -> number of faults: runs one POSIX thread for each stream handle. */
static PyObject *threads(PyObject *self, PyObject *args)
{
    PyObject *object, *handles;
    Task tasks[8];
    pthread_t ids[8];
    long faults = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!", &object, &PyTuple_Type, &handles))
        return NULL;
    AclPool *pool = api->pool_of(object);
    if (pool == NULL)
        return NULL;
    int count = (int)PyTuple_GET_SIZE(handles);
    for (int i = 0; i < count && i < 8; i++) {
        void *stream = PyLong_AsVoidPtr(PyTuple_GET_ITEM(handles, i));
        tasks[i].arena = api->arena(pool, stream);
        /* This thread has a context and allocates a first block, so that the others need no driver call. */
        api->free(tasks[i].arena, api->alloc(tasks[i].arena, 1 << 20));
    }
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < count && i < 8; i++)
        pthread_create(&ids[i], NULL, on_thread, &tasks[i]);
    for (int i = 0; i < count && i < 8; i++) {
        pthread_join(ids[i], NULL);
        faults += tasks[i].faults;
    }
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(faults);
}

/* buffer(pool, stream, size) -> a Buffer around a block that C allocated. */
static PyObject *buffer(PyObject *self, PyObject *args)
{
    PyObject *object;
    unsigned long long stream;
    Py_ssize_t size;
    (void)self;
    if (!PyArg_ParseTuple(args, "OKn", &object, &stream, &size))
        return NULL;
    AclPool *pool = api->pool_of(object);
    if (pool == NULL)
        return NULL;
    aclrtStream handle = (aclrtStream)(uintptr_t)stream;
    AclPoolArena *arena = api->arena(pool, handle);
    AclPoolBlock *block = aclpool_alloc_padded(api, pool, handle, (size_t)size);
    if (block == NULL)
        return PyErr_NoMemory();
    PyObject *made = api->buffer_of(object, arena, block, (size_t)size);
    if (made == NULL)
        api->free(arena, block);
    return made;
}

/* stats(pool, size=sizeof) -> (filled, streams, allocated, reserved, allocations, frees, failures) */
static PyObject *stats(PyObject *self, PyObject *args)
{
    PyObject *object;
    unsigned size = sizeof(AclPoolStats);
    AclPoolStats all;
    (void)self;
    if (!PyArg_ParseTuple(args, "O|I", &object, &size))
        return NULL;
    AclPool *pool = api->pool_of(object);
    if (pool == NULL)
        return NULL;
    memset(&all, 0xEE, sizeof all);
    all.size = size;
    api->stats(pool, &all);
    return Py_BuildValue("IIKKKKK", all.size, all.streams, all.allocated, all.reserved,
                         all.allocations, all.frees, all.failures);
}

/* facts(pool) -> (version, size, device, padded(1000), did try_alloc on a new arena fail, trimmed, check) */
static PyObject *facts(PyObject *self, PyObject *object)
{
    AclPool *pool = api->pool_of(object);
    (void)self;
    if (pool == NULL)
        return NULL;
    AclPoolBlock *none = api->try_alloc(api->arena(pool, NULL), (size_t)1 << 30);
    size_t trimmed;
    Py_BEGIN_ALLOW_THREADS
    trimmed = api->trim(pool, 0, ACLPOOL_TRIM_WAIT);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("IIinOnI", api->version, api->size, api->device(pool),
                         (Py_ssize_t)api->padded(pool, 1000), none == NULL ? Py_True : Py_False,
                         (Py_ssize_t)trimmed, api->check(pool));
}

/* serve(pool, stream, register) -> status */
static PyObject *serve(PyObject *self, PyObject *args)
{
    PyObject *object;
    unsigned long long stream;
    int begin;
    (void)self;
    if (!PyArg_ParseTuple(args, "OKp", &object, &stream, &begin))
        return NULL;
    AclPool *pool = api->pool_of(object);
    if (pool == NULL)
        return NULL;
    aclrtStream handle = (aclrtStream)(uintptr_t)stream;
    return PyLong_FromLong(begin ? api->stream_register(pool, handle)
                                 : api->stream_unregister(pool, handle));
}

/* refused(): a table of another major version, and one that is too short, are not usable. */
static PyObject *refused(PyObject *self, PyObject *unused)
{
    AclPoolApi other = *api, older = *api;
    (void)self, (void)unused;
    other.version += 1u << 16;
    older.size -= (uint32_t)sizeof(void *);
    return PyBool_FromLong(!aclpool_usable(&other) && !aclpool_usable(&older) &&
                           !aclpool_usable(NULL) && ACLPOOL_HAS(&older, stats) &&
                           !ACLPOOL_HAS(&older, check));
}

/* nothing(pool): calls with NULL for an arena or a block; raises the exception of buffer_of. */
static PyObject *nothing(PyObject *self, PyObject *object)
{
    AclPool *pool = api->pool_of(object);
    (void)self;
    if (pool == NULL)
        return NULL;
    AclPoolArena *arena = api->arena(pool, NULL);
    if (api->alloc(NULL, 100) != NULL || api->try_alloc(NULL, 100) != NULL ||
        api->free(NULL, NULL) || api->free(arena, NULL) || api->record_stream(NULL, NULL, NULL))
        return PyLong_FromLong(1);
    if (api->buffer_of(object, NULL, NULL, 1) != NULL)
        return PyLong_FromLong(2);
    PyErr_Clear();
    return api->buffer_of(object, arena, NULL, 1);
}

static PyMethodDef methods[] = {
    {"threads", threads, METH_VARARGS, NULL}, {"buffer", buffer, METH_VARARGS, NULL},
    {"stats", stats, METH_VARARGS, NULL},     {"facts", facts, METH_O, NULL},
    {"serve", serve, METH_VARARGS, NULL},     {"refused", refused, METH_NOARGS, NULL},
    {"nothing", nothing, METH_O, NULL},       {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "c_module", NULL, -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_c_module(void)
{
    api = aclpool_import();
    return api == NULL ? NULL : PyModule_Create(&definition);
}
