/* without ERRNO NUMBER... -- PROGRAM ARGUMENT...: runs PROGRAM, for which the kernel refuses the system calls NUMBER
   with the error ERRNO. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { STEPS = 64 };

int main(int count, char **words)
{
    struct sock_filter steps[STEPS] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short used = 1;
    int next = 2;
    for (; next < count && strcmp(words[next], "--") != 0 && used + 3 <= STEPS; next++) {
        steps[used++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)atoi(words[next]), 0, 1);
        steps[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)atoi(words[1]));
    }
    if (next + 1 >= count) {
        fprintf(stderr, "without ERRNO NUMBER... -- PROGRAM ARGUMENT...\n");
        return 2;
    }
    steps[used++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {used, steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        return 2;
    }
    execvp(words[next + 1], words + next + 1);
    perror(words[next + 1]);
    return 2;
}
