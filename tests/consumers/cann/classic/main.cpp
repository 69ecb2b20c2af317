// A classifier in the style of the classic samples: buffers of the sizes that the model asks for, a pool of datasets,
// runs on a stream, and a callback after every EVERY runs on a thread that waits for reports.
//     main MODEL RUNS EVERY
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

#include "acl/acl.h"

#define CHECK(call)                                                          \
    do {                                                                     \
        aclError status = (call);                                            \
        if (status != ACL_SUCCESS) {                                         \
            std::printf("%s: %d: %s\n", #call, status, aclGetRecentErrMsg()); \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

typedef std::map<aclmdlDataset *, aclmdlDataset *> Pairs;

static std::mutex pool_lock;
static Pairs pool;
static std::atomic<int> told(0);

static aclmdlDataset *dataset_with(size_t bytes, float first)
{
    void *memory = nullptr;
    CHECK(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_NORMAL_ONLY));
    std::vector<float> values(bytes / sizeof(float));
    for (size_t i = 0; i < values.size(); i++) {
        values[i] = first + static_cast<float>(i);
    }
    CHECK(aclrtMemcpy(memory, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
    aclmdlDataset *made = aclmdlCreateDataset();
    CHECK(aclmdlAddDatasetBuffer(made, aclCreateDataBuffer(memory, bytes)));
    return made;
}

static void dataset_free(aclmdlDataset *dataset)
{
    aclDataBuffer *buffer = aclmdlGetDatasetBuffer(dataset, 0);
    CHECK(aclrtFree(aclGetDataBufferAddr(buffer)));
    CHECK(aclDestroyDataBuffer(buffer));
    CHECK(aclmdlDestroyDataset(dataset));
}

static void tell(void *argument)
{
    Pairs *done = static_cast<Pairs *>(argument);
    std::lock_guard<std::mutex> held(pool_lock);
    for (auto &pair : *done) {
        aclDataBuffer *buffer = aclmdlGetDatasetBuffer(pair.second, 0);
        size_t bytes = aclGetDataBufferSizeV2(buffer);
        void *host = nullptr;
        CHECK(aclrtMallocHost(&host, bytes));
        CHECK(aclrtMemcpy(host, bytes, aclGetDataBufferAddr(buffer), bytes, ACL_MEMCPY_DEVICE_TO_HOST));
        const float *values = static_cast<const float *>(host);
        size_t best = 0;
        for (size_t i = 1; i < bytes / sizeof(float); i++) {
            best = values[i] > values[best] ? i : best;
        }
        std::printf("top 1: index %zu value %g\n", best, values[best]);
        CHECK(aclrtFreeHost(host));
        pool[pair.first] = pair.second;
        told++;
    }
    delete done;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        return 2;
    }
    int runs = std::atoi(argv[2]), every = std::atoi(argv[3]);
    CHECK(aclInit(nullptr));
    CHECK(aclrtSetDevice(0));
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    CHECK(aclrtCreateContext(&context, 0));
    CHECK(aclrtCreateStream(&stream));

    size_t work_bytes = 0, weight_bytes = 0;
    void *work = nullptr, *weights = nullptr;
    uint32_t model = 0;
    CHECK(aclmdlQuerySize(argv[1], &work_bytes, &weight_bytes));
    CHECK(aclrtMalloc(&work, work_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMalloc(&weights, weight_bytes, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclmdlLoadFromFileWithMem(argv[1], &model, work, work_bytes, weights, weight_bytes));
    aclmdlDesc *description = aclmdlCreateDesc();
    CHECK(aclmdlGetDesc(description, model));
    for (int i = 0; i < every + 1; i++) {
        aclmdlDataset *in = dataset_with(aclmdlGetInputSizeByIndex(description, 0), 1);
        pool[in] = dataset_with(aclmdlGetOutputSizeByIndex(description, 0), 0);
    }

    std::atomic<bool> over(false);
    std::thread reports([&] {
        CHECK(aclrtSetCurrentContext(context));
        while (!over) {
            (void)aclrtProcessReport(100);
        }
    });
    uint64_t thread = static_cast<uint64_t>(reports.native_handle());
    CHECK(aclrtSubscribeReport(thread, stream));
    Pairs *queued = new Pairs;
    for (int i = 0; i < runs; i++) {
        std::pair<aclmdlDataset *, aclmdlDataset *> pair;
        {
            std::lock_guard<std::mutex> held(pool_lock);
            pair = *pool.begin();
            pool.erase(pool.begin());
        }
        CHECK(aclmdlExecuteAsync(model, pair.first, pair.second, stream));
        (*queued)[pair.first] = pair.second;
        if ((i + 1) % every == 0) {
            CHECK(aclrtLaunchCallback(tell, queued, ACL_CALLBACK_BLOCK, stream));
            CHECK(aclrtSynchronizeStream(stream));
            queued = new Pairs;
        }
    }
    CHECK(aclrtSynchronizeStream(stream));
    over = true;
    reports.join();
    CHECK(aclrtUnSubscribeReport(thread, stream));

    pool.insert(queued->begin(), queued->end());
    delete queued;
    for (auto &pair : pool) {
        dataset_free(pair.first);
        dataset_free(pair.second);
    }
    CHECK(aclmdlDestroyDesc(description));
    CHECK(aclmdlUnload(model));
    CHECK(aclrtFree(work));
    CHECK(aclrtFree(weights));
    CHECK(aclrtDestroyStream(stream));
    CHECK(aclrtDestroyContext(context));
    CHECK(aclrtResetDevice(0));
    CHECK(aclFinalize());
    std::printf("%d results\n", told.load());
    return 0;
}
