/* kernel.h: binaries, their functions, and the arguments of launches.

   A binary's bytes and its loaded library live until it was unloaded and its last queued launch is
   done. Functions and argument handles die with the binary's handle. */
#ifndef SIM_KERNEL_H
#define SIM_KERNEL_H

#include "base/core.h"

typedef void (*KernelCode)(void *args, uint32_t block, uint32_t blocks);

typedef enum CodeKind {
    CODE_HOST,      /* a shared object of this machine */
    CODE_DEVICE,    /* an ELF file of another */
    CODE_OPAQUE,    /* bytes taken as an AICPU library without a look */
    CODE_CALLBACK,  /* a function of the program itself (acl_sim_kernel_make) */
} CodeKind;

typedef struct Code {
    _Atomic int references; /* the handle's, and one per queued launch */
    CodeKind kind;
    void *bytes;
    size_t length;
    void *library;          /* of dlopen */
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
    KernelCode run;         /* NULL: not for this machine */
    const uint32_t *sizes;  /* of its parameters, ends with 0; NULL if it does not say */
    void *address;
    bool cpu;               /* registered by aclrtRegisterCpuFunc */
} Function;

struct Binary {
    Code *code;
    pthread_mutex_t lock;   /* of the lists */
    Function *functions;
    struct Args *args;
};

void code_hold(Code *code);
void code_release(Code *code);

/* A binary that a call follows, by its own handle or one of its functions' or arguments': it is unloaded
 * at the end of the last such call. */
void binary_unref(Binary *const *binary);
#define BINARY_REF(name) Binary *name __attribute__((cleanup(binary_unref))) = NULL
/* Holds the binary that `part` (a function, or arguments) was made for, and names at this offset; false if one of
 * them is dead. */
bool binary_of_part(const void *part, HandleKind kind, size_t offset, Binary **binary);
/* The binary of a function, held; 107017 for what is not a live function. */
aclError function_require(const void *handle, Binary **binary);

/* --- kernelargs.c --- */

enum { PARAMS_MAX = 128, ARGS_BYTES_MAX = 65536 };

/* Bytes for one launch: `copy` is malloc'ed, its first `size` bytes are the arguments. */
typedef struct ArgsCopy {
    void *copy;
    size_t size;
} ArgsCopy;

/* 107017 for what is not a live handle. */
aclError args_check(aclrtArgsHandle handle);
/* That too, and 107000 if it was not finalized. */
aclError args_copy(aclrtArgsHandle handle, ArgsCopy *copy);

/* The arguments that `args` points at, laid out by the function's parameter sizes. */
aclError args_gather(const Function *function, void *const *args, ArgsCopy *copy);

/* Ends the handles that were made for a binary's functions; the binary's lock is held. */
void args_binary_ends(const Binary *binary);
/* Gives back what they own. */
void args_binary_gone(Binary *binary);

/* The offset of a new parameter of that size, behind the present ones. */
size_t param_place(size_t used, size_t size);

/* The control door's way to a kernel: a function of the running program, such as a ctypes callback
   or Numba's cfunc, becomes a binary with that one kernel. It runs unguarded: a fault in it is the
   process's. `sizes` (may be NULL) are its parameters' sizes, ended by 0. */
SIM_SHARED aclError acl_sim_kernel_make(const char *name, KernelCode code, const uint32_t *sizes,
    aclrtBinHandle *binary, aclrtFuncHandle *function);

/* For the order checker (race.h): in the arguments of kernels of that name, the pointer at `offset`
   names `bytes` that they write, or only read.  Of such kernels no other argument is looked at.
   207001 when 256 arguments were declared. */
SIM_SHARED aclError acl_sim_kernel_touches(const char *kernel, uint32_t offset, size_t bytes,
    int writes);

/* --- kernelrun.c --- */

typedef struct Launch {
    Code *code;             /* holds a reference */
    aclrtFuncHandle handle; /* for exception callbacks */
    KernelCode run;
    uint32_t blocks;
    void *args;             /* a device address, or `copy` */
    void *copy;             /* malloc'ed, or NULL */
    size_t args_size;
    int64_t timeout_us;     /* 0: none */
} Launch;

/* Queues it; takes over copy and the reference, on failure too. */
aclError launch_submit(Stream *stream, const Launch *launch);

#endif
