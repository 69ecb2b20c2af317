/* checks.c: see checks.h. */
#include "base/checks.h"

atomic_uint check_tools;
Checks checks;
