/* check.h: shared by the example programs: if a call fails, its name is printed and the program ends. */
#ifndef EXAMPLES_CHECK_H
#define EXAMPLES_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"

#define CHECK(call)                                                                          \
    do {                                                                                     \
        aclError check_status = (call);                                                      \
        if (check_status != ACL_SUCCESS) {                                                   \
            const char *check_text = aclGetRecentErrMsg();                                   \
            fprintf(stderr, "%s:%d: %s returned %d\n%s\n", __FILE__, __LINE__, #call,        \
                    check_status, check_text != NULL ? check_text : "");                     \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

#define EXPECT(condition)                                                                    \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);         \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

/* Initialises ACL and sets a device. */
static inline void open_device(int32_t device)
{
    CHECK(aclInit(NULL));
    CHECK(aclrtSetDevice(device));
}

static inline void close_device(int32_t device)
{
    CHECK(aclrtResetDevice(device));
    CHECK(aclFinalize());
    puts("ok");
}

#endif
