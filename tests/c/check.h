/* For C programs that test the simulator: checks that print where they failed, and end the program. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "acl/acl.h"

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);           \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

/* Checks that a call returns a code. */
#define GIVES(code, call)                                                             \
    do {                                                                              \
        aclError got_ = (call);                                                       \
        if (got_ != (code)) {                                                         \
            fprintf(stderr, "%s:%d: %s gave %d, expected %d\n", __FILE__, __LINE__, #call, got_, \
                    (int)(code));                                                     \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

#define OK(call) GIVES(ACL_SUCCESS, call)

#endif
