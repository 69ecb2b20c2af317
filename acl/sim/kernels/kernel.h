/* kernel.h: binaries, their functions, and the arguments of launches.
 *
 * The bytes of a binary and its loaded library are freed when the binary is unloaded and its last
 * queued launch is done. The handles of its functions and arguments die with the binary's handle. */
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H

#include "base/core.h"

typedef void (*KernelCode)(void *args, uint32_t block, uint32_t blocks);

typedef enum CodeKind {
    CODE_HOST,      /* a shared object of this machine */
    CODE_DEVICE,    /* an ELF file of another machine */
    CODE_OPAQUE,    /* bytes that are accepted as an AICPU library without a check */
    CODE_CALLBACK,  /* a function of the program itself (acl_sim_kernel_make) */
} CodeKind;

typedef struct Code {
    _Atomic int references; /* number of references: the binary, and each queued launch */
    CodeKind kind;
    void *bytes;
    size_t length;
    void *library;          /* handle of dlopen; NULL if the code is not a loaded library */
    aclrtOpExceptionCallback on_exception;
    void *exception_data;
} Code;

typedef struct Binary Binary;

typedef struct Function {
    struct Function *next;
    Binary *binary;
    Code *code;
    char *name;
    uint64_t entry;
    KernelCode run;         /* NULL if this machine cannot run the code */
    const uint32_t *sizes;  /* sizes of the parameters in bytes, ended by 0; NULL if they are not known */
    void *address;
    bool cpu;               /* registered by aclrtRegisterCpuFunc */
} Function;

struct Binary {
    Code *code;
    pthread_mutex_t lock;   /* guards the lists `functions` and `args` */
    Function *functions;
    struct Args *args;
};

void code_hold(Code *code);
void code_release(Code *code);

/* Drops a reference to a binary. A call takes a reference when it resolves the handle of the binary, of
 * one of its functions, or of arguments. If the binary's handle has ended, the last drop unloads the
 * binary. */
void binary_unref(Binary *const *binary);
#define BINARY_REF(name) Binary *name __attribute__((cleanup(binary_unref))) = NULL
/* Gives the binary to which `part` (a function, or arguments) belongs, with a reference. The part has a
 * pointer to its binary at the byte `offset`. False if the part or the binary is dead. */
bool binary_of_part(const void *part, HandleKind kind, size_t offset, Binary **binary);
/* Gives the binary of a function, with a reference; 107017 if the function's handle is not live. */
aclError function_require(const void *handle, Binary **binary);

/* --- kernelargs.c --- */

enum { PARAMS_MAX = 128, ARGS_BYTES_MAX = 65536 };

/* The arguments of one launch: `copy` is malloc'ed, and its first `size` bytes are the arguments. */
typedef struct ArgsCopy {
    void *copy;
    size_t size;
} ArgsCopy;

/* Returns 107017 if the handle is not live. */
aclError args_check(aclrtArgsHandle handle);
/* Copies the arguments. Returns 107017 if the handle is not live, 107000 if its arguments were not finalized after
 * their last change, 207001 without host memory. */
aclError args_copy(aclrtArgsHandle handle, ArgsCopy *copy);

/* Copies the arguments from the array of pointers `args` into one buffer, at the offsets that follow from the
 * sizes of the function's parameters. */
aclError args_gather(const Function *function, void *const *args, ArgsCopy *copy);

/* Ends the argument handles that were made for a binary's functions; the binary's lock is held. */
void args_binary_ends(const Binary *binary);
/* Frees the memory of the arguments of a binary that is being unloaded. */
void args_binary_gone(Binary *binary);

/* Returns the offset of a parameter of `size` bytes behind `used` bytes of parameters. It is aligned to the smallest
 * power of two that is at least `size`, but at most to 8 bytes. */
size_t param_place(size_t used, size_t size);

/* Part of the control API: makes a binary with one kernel, which is a function of the running program,
 * such as a ctypes callback or Numba's cfunc. A fault in this function ends the process. `sizes` (may
 * be NULL) has the sizes of its parameters in bytes, ended by 0. */
SIM_SHARED aclError acl_sim_kernel_make(const char *name, KernelCode code, const uint32_t *sizes,
    aclrtBinHandle *binary, aclrtFuncHandle *function);

/* For the order checker (race.h): declares that kernels named `kernel` access `bytes` bytes at the
 * pointer that lies at the byte `offset` of their arguments: they write these bytes if `writes` is not
 * 0, else they only read them. Arguments that were not declared are not checked. 207001 if 256
 * arguments were declared before. */
SIM_SHARED aclError acl_sim_kernel_touches(const char *kernel, uint32_t offset, size_t bytes,
    int writes);

/* --- kernelrun.c --- */

typedef struct Launch {
    Code *code;             /* holds a reference */
    aclrtFuncHandle handle; /* the function's handle, which exception callbacks get */
    KernelCode run;
    uint32_t blocks;
    void *args;             /* a device address, or `copy` */
    void *copy;             /* malloc'ed, or NULL */
    size_t args_size;
    int64_t timeout_us;     /* the longest run time in microseconds; 0: no limit */
} Launch;

/* Queues the launch. Its `copy` and its reference to the code are freed after the launch, or here on failure. */
aclError launch_submit(Stream *stream, const Launch *launch);

#endif
