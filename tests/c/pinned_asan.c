/* Built with AddressSanitizer against a simulator built without it: the program uses a pinned block to its end, twice.
 * With an argument it writes one byte behind the block.  test_check.py runs it. */
#include <string.h>

#include "check.h"

enum { BYTES = 100 };

int main(int count, char **arguments)
{
    (void)arguments;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    for (int turn = 0; turn < 2; turn++) {
        char *block;
        OK(aclrtMallocHost((void **)&block, BYTES));
        for (int i = 0; i < BYTES + (count > 1); i++) {
            block[i] = (char)i;
        }
        OK(aclrtFreeHost(block));
    }
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    return 0;
}
