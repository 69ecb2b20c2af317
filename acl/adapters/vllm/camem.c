/* camem.c: see camem.h. */
#include "camem.h"

#include <stddef.h>

static CamemMalloc on_malloc;
static CamemFree on_free;

void camem_set(CamemMalloc allocate, CamemFree release)
{
    on_malloc = allocate;
    on_free = release;
}

void *my_malloc(ssize_t size, int device, void *stream)
{
    return on_malloc == NULL ? NULL : on_malloc(size, device, stream);
}

void my_free(void *address, ssize_t size, int device, void *stream)
{
    if (on_free != NULL) {
        on_free(address, size, device, stream);
    }
}
