/* Two processes share memory and events.  `two_processes [DEVICE [DEVICE]]` starts itself
   again as the consumer; each uses the device of that number. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { BYTES = 4 << 20, KEY = 65 };

/* The message that one process sends to the other through the pipe. */
typedef struct Message {
    char memory_key[KEY];
    uint64_t shareable;
    size_t shareable_bytes;
    aclrtIpcEventHandle event;
} Message;

static void transfer(int file, void *data, size_t size, ssize_t (*move)(int, void *, size_t))
{
    for (size_t done = 0; done < size;) {
        ssize_t part = move(file, (char *)data + done, size - done);
        EXPECT(part > 0);
        done += (size_t)part;
    }
}

static ssize_t put(int file, void *data, size_t size)
{
    return write(file, data, size);
}

static aclrtPhysicalMemProp properties(int32_t device)
{
    aclrtPhysicalMemProp prop;
    memset(&prop, 0, sizeof prop);
    prop.memAttr = ACL_HBM_MEM_HUGE;
    prop.location.id = (uint32_t)device;
    prop.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    return prop;
}

/* The consumer sends its process id, receives the keys, and adds 1 to the first byte of each piece. */
static int consume(int32_t device, int in, int out)
{
    Message message;
    aclrtStream stream;
    aclrtEvent event;
    aclrtDrvMemHandle physical;
    void *memory;
    void *mapped;
    unsigned char byte;
    int32_t pid;
    open_device(device);
    CHECK(aclrtDeviceGetBareTgid(&pid));
    transfer(out, &pid, sizeof pid, put);
    transfer(in, &message, sizeof message, read);
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtIpcMemImportByKey(&memory, message.memory_key, 0));
    CHECK(aclrtMemImportFromShareableHandle(message.shareable, device, &physical));
    CHECK(aclrtReserveMemAddress(&mapped, message.shareable_bytes, 0, NULL, 0));
    CHECK(aclrtMapMem(mapped, message.shareable_bytes, 0, physical, 0));
    CHECK(aclrtIpcOpenEventHandle(message.event, &event));
    CHECK(aclrtStreamWaitEvent(stream, event));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtMemcpy(&byte, 1, memory, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(byte == 40);
    CHECK(aclrtMemset(memory, BYTES, byte + 1, 1));
    CHECK(aclrtMemcpy(&byte, 1, mapped, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(byte == 50);
    CHECK(aclrtMemset(mapped, message.shareable_bytes, byte + 1, 1));
    CHECK(aclrtRecordEvent(event, stream));
    CHECK(aclrtSynchronizeStream(stream));
    CHECK(aclrtUnmapMem(mapped));
    CHECK(aclrtReleaseMemAddress(mapped));
    CHECK(aclrtFreePhysical(physical));
    CHECK(aclrtIpcMemClose(message.memory_key));
    CHECK(aclrtDestroyEvent(event));
    CHECK(aclrtDestroyStream(stream));
    transfer(out, &pid, sizeof pid, put);
    close_device(device);
    return 0;
}

static pid_t start_consumer(char *program, const char *device, int *in, int *out)
{
    int down[2];
    int up[2];
    EXPECT(pipe(down) == 0 && pipe(up) == 0);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        char first[16];
        char second[16];
        close(down[1]);
        close(up[0]);
        snprintf(first, sizeof first, "%d", down[0]);
        snprintf(second, sizeof second, "%d", up[1]);
        execl(program, program, "consumer", device, first, second, (char *)NULL);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    *in = up[0];
    *out = down[1];
    return child;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "consumer") == 0) {
        return consume(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    }
    int32_t device = argc > 1 ? atoi(argv[1]) : 0;
    int in;
    int out;
    pid_t child = start_consumer(argv[0], argc > 2 ? argv[2] : "0", &in, &out);
    Message message;
    aclrtPhysicalMemProp prop = properties(device);
    aclrtStream stream;
    aclrtEvent event;
    aclrtDrvMemHandle physical;
    void *memory;
    void *mapped;
    unsigned char byte;
    int32_t consumer;
    int status;
    memset(&message, 0, sizeof message);
    open_device(device);
    CHECK(aclrtCreateStream(&stream));
    CHECK(aclrtMalloc(&memory, BYTES, ACL_MEM_MALLOC_HUGE_ONLY));
    CHECK(aclrtIpcMemGetExportKey(memory, BYTES, message.memory_key, KEY, 0));
    CHECK(aclrtMemGetAllocationGranularity(&prop, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM,
                                           &message.shareable_bytes));
    CHECK(aclrtMallocPhysical(&physical, message.shareable_bytes, &prop, 0));
    CHECK(aclrtReserveMemAddress(&mapped, message.shareable_bytes, 0, NULL, 0));
    CHECK(aclrtMapMem(mapped, message.shareable_bytes, 0, physical, 0));
    CHECK(aclrtMemExportToShareableHandle(physical, ACL_MEM_HANDLE_TYPE_NONE, 0,
                                          &message.shareable));
    CHECK(aclrtCreateEventExWithFlag(&event, ACL_EVENT_IPC));
    CHECK(aclrtIpcGetEventHandle(event, &message.event));
    transfer(in, &consumer, sizeof consumer, read);
    CHECK(aclrtIpcMemSetImportPid(message.memory_key, &consumer, 1));
    CHECK(aclrtMemSetPidToShareableHandle(message.shareable, &consumer, 1));
    CHECK(aclrtMemsetAsync(memory, BYTES, 40, BYTES, stream));
    CHECK(aclrtMemsetAsync(mapped, message.shareable_bytes, 50, message.shareable_bytes, stream));
    CHECK(aclrtRecordEvent(event, stream));
    transfer(out, &message, sizeof message, put);
    transfer(in, &consumer, sizeof consumer, read);
    CHECK(aclrtSynchronizeEvent(event));
    CHECK(aclrtMemcpy(&byte, 1, memory, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(byte == 41);
    CHECK(aclrtMemcpy(&byte, 1, mapped, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    EXPECT(byte == 51);
    CHECK(aclrtIpcMemClose(message.memory_key));
    CHECK(aclrtUnmapMem(mapped));
    CHECK(aclrtFreePhysical(physical));
    CHECK(aclrtReleaseMemAddress(mapped));
    CHECK(aclrtFree(memory));
    CHECK(aclrtDestroyEvent(event));
    CHECK(aclrtDestroyStream(stream));
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close_device(device);
    return 0;
}
