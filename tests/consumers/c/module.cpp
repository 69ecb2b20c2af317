// An extension module in C++: blocks that free themselves, and threads of the standard library.
#include "aclpool.h"

#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "worker.h"

namespace {

const AclPoolApi *api = nullptr;

class Block {
public:
    Block(AclPoolArena *arena, size_t size) : arena_(arena), block_(api->alloc(arena, size))
    {
        if (block_ == nullptr)
            throw std::bad_alloc();
    }
    Block(Block &&other) noexcept : arena_(other.arena_), block_(std::exchange(other.block_, nullptr))
    {
    }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;
    ~Block()
    {
        if (block_ != nullptr)
            api->free(arena_, block_);
    }
    void *address() const { return aclpool_address(block_); }
    void used_on(aclrtStream stream) const { api->record_stream(arena_, block_, stream); }

private:
    AclPoolArena *arena_;
    AclPoolBlock *block_;
};

// blocks(pool, stream, other) -> true if 100 blocks have distinct addresses; they are freed at the end of the scope
PyObject *blocks(PyObject *, PyObject *args)
{
    PyObject *object = nullptr;
    unsigned long long stream = 0, other = 0;
    if (!PyArg_ParseTuple(args, "OKK", &object, &stream, &other))
        return nullptr;
    AclPool *pool = api->pool_of(object);
    if (pool == nullptr)
        return nullptr;
    AclPoolArena *arena = api->arena(pool, reinterpret_cast<void *>(stream));
    bool apart = true;
    try {
        std::vector<Block> held;
        for (int i = 0; i < 100; i++)
            held.emplace_back(arena, 512u * static_cast<unsigned>(i + 1));
        held.front().used_on(reinterpret_cast<void *>(other));
        for (const Block &one : held)
            for (const Block &two : held)
                apart = apart && (&one == &two || one.address() != two.address());
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
    return PyBool_FromLong(apart);
}

// threads(pool, stream) -> number of faults: two threads use the arena of one stream
PyObject *threads(PyObject *, PyObject *args)
{
    PyObject *object = nullptr;
    unsigned long long stream = 0;
    if (!PyArg_ParseTuple(args, "OK", &object, &stream))
        return nullptr;
    AclPool *pool = api->pool_of(object);
    if (pool == nullptr)
        return nullptr;
    AclPoolArena *arena = api->arena(pool, reinterpret_cast<void *>(stream));
    api->free(arena, api->alloc(arena, 1 << 20));
    std::vector<long> faults(2);
    Py_BEGIN_ALLOW_THREADS
    std::vector<std::thread> running;
    for (long &mine : faults)
        running.emplace_back([&mine, arena] { mine = worker_run(api, arena, 700, 32, 100); });
    for (std::thread &one : running)
        one.join();
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(faults[0] + faults[1]);
}

PyMethodDef methods[] = {
    {"blocks", blocks, METH_VARARGS, nullptr},
    {"threads", threads, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "cpp_module", nullptr, -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit_cpp_module()
{
    api = aclpool_import();
    return api == nullptr ? nullptr : PyModule_Create(&definition);
}
