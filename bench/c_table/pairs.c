/* The pool's table from C and C++: an extension module that times pairs of calls.

       gcc -O2 -shared -fPIC -I$(python -c 'import aclpool; print(aclpool.include_dir())') \
           $(python3-config --includes) pairs.c -o pairs.so
       g++ ... -x c++ pairs.c                              the same file, as C++

   measure(pool, stream, size, count) returns nanoseconds of thread CPU time of a pair, for each way to call. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <aclpool.h>
#include <time.h>

static const AclPoolApi *api;
static void *volatile sink; /* consumes the addresses, so that reading them is not optimised away */

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double alloc_ns(AclPoolArena *arena, size_t size, long count)
{
    double start = now_ns();
    for (long i = 0; i < count; i++) {
        AclPoolBlock *block = api->alloc(arena, size);
        if (block == NULL) {
            return -1;
        }
        sink = aclpool_address(block);
        api->free(arena, block);
    }
    return (now_ns() - start) / (double)count;
}

static double try_alloc_ns(AclPoolArena *arena, size_t size, long count)
{
    double start = now_ns();
    for (long i = 0; i < count; i++) {
        AclPoolBlock *block = api->try_alloc(arena, size);
        if (block == NULL) {
            return -1;
        }
        sink = aclpool_address(block);
        api->free(arena, block);
    }
    return (now_ns() - start) / (double)count;
}

static double arena_ns(AclPool *pool, void *stream, size_t size, long count)
{
    double start = now_ns();
    for (long i = 0; i < count; i++) {
        AclPoolArena *arena = api->arena(pool, stream);
        AclPoolBlock *block = api->alloc(arena, size);
        if (block == NULL) {
            return -1;
        }
        sink = aclpool_address(block);
        api->free(arena, block);
    }
    return (now_ns() - start) / (double)count;
}

static PyObject *measure(PyObject *self, PyObject *arguments)
{
    PyObject *object;
    unsigned long long stream;
    Py_ssize_t size;
    long count;
    double alloc, attempt, found;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "OKnl", &object, &stream, &size, &count)) {
        return NULL;
    }
    AclPool *pool = api->pool_of(object);
    if (pool == NULL) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    AclPoolArena *arena = api->arena(pool, (void *)(uintptr_t)stream);
    alloc_ns(arena, (size_t)size, count / 10 + 1); /* warm-up */
    alloc = alloc_ns(arena, (size_t)size, count);
    attempt = try_alloc_ns(arena, (size_t)size, count);
    found = arena_ns(pool, (void *)(uintptr_t)stream, (size_t)size, count);
    Py_END_ALLOW_THREADS
    if (alloc < 0 || attempt < 0 || found < 0) {
        return PyErr_NoMemory();
    }
    return Py_BuildValue("{sdsdsd}", "alloc, free", alloc, "try_alloc, free", attempt, "arena, alloc, free", found);
}

static PyMethodDef methods[] = {{"measure", measure, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "pairs", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_pairs(void)
{
    api = aclpool_import();
    return api == NULL ? NULL : PyModule_Create(&module);
}
