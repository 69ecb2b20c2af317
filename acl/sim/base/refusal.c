/* refusal.c: messages about memory that the host's kernel refused.

   The simulator reserves far more addresses than it has memory for, and keeps devices in files in
   memory. A limit of addresses (ulimit -v), a memory checker or a sandbox can make the kernel
   refuse such a request. A special message reports this, because the cause is neither a full device
   nor too many objects.

   Thread rule: one mutex, and no other lock is taken while it is held; if several calls are refused
   at the same time, the last one is reported. */
#include "base/refusal.h"

#include <errno.h>
#include <string.h>

FILE_LOCK(lock);
static const char *refused_call = "mmap";
static size_t refused_bytes;
static int refused_error;

void refusal_note(const char *call, size_t bytes)
{
    int error = errno;
    pthread_mutex_lock(&lock);
    refused_call = call;
    refused_bytes = bytes;
    refused_error = error;
    pthread_mutex_unlock(&lock);
}

aclError refusal_tell(const char *function, const char *purpose)
{
    pthread_mutex_lock(&lock);
    const char *call = refused_call;
    size_t bytes = refused_bytes;
    int error = refused_error;
    pthread_mutex_unlock(&lock);
    return error_set(function, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL,
                     "the host refused %s of %zu bytes for %s: %s (a limit of addresses as by "
                     "ulimit -v, a memory checker or a sandbox)", call, bytes, purpose,
                     strerror(error));
}
