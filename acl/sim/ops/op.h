/* op.h: the operator library: what ONNX nodes and ACL's single operators both run on.

   An operator is one row of a table (OpKind). A caller fills an OpCall with inputs and attributes,
   asks `op_infer` for the outputs' types and shapes, provides memory for outputs and workspace, and
   calls `op_run`. Infer reads shapes, types and attributes, and the values only of the inputs named
   in `value_inputs` (a Reshape's target, a Slice's bounds). Run reads all values and cannot fail
   for a reason that infer could have seen; it may be called on another thread, long after infer.

   The library allocates nothing that outlives a call, has no state, and does not depend on devices. */
#ifndef SIM_OP_H
#define SIM_OP_H

#include "numbers/tensor.h"

enum { OP_INPUTS_ALL = 1 << 20, OP_MESSAGE_ROOM = 240 };

/* OP_ORT: the domain com.microsoft, whose operators ONNX Runtime's optimiser puts into models. */
typedef enum OpDomain { OP_ONNX = 1, OP_ACL = 2, OP_BOTH = 3, OP_ORT = 4 } OpDomain;

typedef enum AttrKind {
    ATTR_NONE,
    ATTR_INT,
    ATTR_FLOAT,
    ATTR_STRING,
    ATTR_TENSOR,
    ATTR_GRAPH,
    ATTR_INTS,
    ATTR_FLOATS,
    ATTR_STRINGS,
} AttrKind;

typedef struct Attr {
    const char *name;
    AttrKind kind;
    int64_t i;
    double f;
    const char *s;
    int64_t count;       /* number of elements in ints, floats or strings */
    const int64_t *ints;
    const float *floats;
    const char *const *strings;
    Tensor tensor;
    void *graph;         /* a subgraph, for the node loop, which executes If and Loop */
} Attr;

typedef struct AttrList {
    const Attr *items;
    int count;
} AttrList;

typedef struct OpKind OpKind;

typedef struct OpCall {
    const OpKind *kind;
    const AttrList *attrs;
    int opset;               /* version of the ONNX operator set; 0 for ACL operators */
    unsigned threads;        /* how many cores the call may use, at least 1 */
    int input_count;
    int output_count;
    const Tensor **inputs;   /* NULL = optional input left out */
    Tensor *outputs;         /* data NULL = optional output not wanted */
    void *workspace;
    char *message;             /* OP_MESSAGE_ROOM bytes for the reason of a failure */
    bool (*interrupted)(void); /* true when op_run is to end early; NULL = never */
    double steps_max;          /* limit of the call's work, in steps; 0 means OP_STEPS_MAX */
} OpCall;

struct OpKind {
    const char *name;
    OpDomain domain;
    int inputs_min;
    int inputs_max;
    int outputs_max;
    unsigned value_inputs;                   /* bit i: infer reads the values of input i */
    bool (*infer)(OpCall *call);
    int64_t (*workspace)(const OpCall *call); /* NULL = the operator needs no workspace */
    bool (*run)(const OpCall *call);
    int variant;                             /* number of the operator within its source file's family */
    unsigned flags;
};

enum {
    OP_VIEW = 1,       /* output 0 is input 0 under another shape: a caller may share the memory */
    OP_IN_PLACE = 4,   /* output 0 uses input 0's memory; the caller sets its type and shape */
    OP_STRIDED = 8,    /* inputs 1 to 3 are a view of input 0 (size, stride, offset), 5 to 7 one of input 4 */
    OP_DATA_SIZED = 2, /* infer needs all values: the outputs' sizes depend on them */
    OP_SHAPED = 16,    /* only the shapes of the inputs matter: their values are not read */
};

/* Returns the operator of this name and domain, or NULL. */
const OpKind *op_find(const char *name, OpDomain domain);

/* Returns the operator with that index, counted over all tables; NULL if there are fewer operators. */
const OpKind *op_at(size_t index);

/* Checks the numbers of inputs and outputs, and the attributes. Returns false and writes a message
   if the operator does not support them. A call that passes may still be refused by op_infer. */
bool op_accept(const OpCall *call);

/* True if op_infer reads the values of this input, and not only its shape. */
bool op_infer_reads(const OpKind *kind, int input);

/* True if the operator supports the call's attributes, each with its kind. Otherwise writes a
   message and returns false. */
bool form_accept(const OpCall *call);

/* Returns false and writes a message if one of three checks fails: an operator with any number of inputs has all of
   them; an input that must hold one value holds exactly one; inputs that must have the same type have it. */
bool form_check_inputs(const OpCall *call);

/* Fills in the types and shapes of the outputs. Returns false and writes call->message if it cannot. */
bool op_infer(OpCall *call);
int64_t op_workspace(const OpCall *call);

/* Returns how many elements of the input, from its beginning, its view can reach; later elements need not
   exist. Returns -1 if the input has no view, so that all elements are needed. */
int64_t op_reach(const OpCall *call, int input);
bool op_run(const OpCall *call);

/* Writes the reason into call->message. The macro op_fail does the same; its value is the constant false. */
void op_explain(const OpCall *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define op_fail(...) (op_explain(__VA_ARGS__), false)

/* --- for operators --- */

const Attr *attr_find(const OpCall *call, const char *name);
int64_t attr_int(const OpCall *call, const char *name, int64_t otherwise);
double attr_float(const OpCall *call, const char *name, double otherwise);
const char *attr_string(const OpCall *call, const char *name, const char *otherwise);

/* Returns input i; NULL if it was left out, or if i is -1 (the operator has no such input). */
static inline const Tensor *op_input(const OpCall *call, int i)
{
    return i >= 0 && i < call->input_count ? call->inputs[i] : NULL;
}

/* The most steps of one call, if their number depends on attributes: about a minute of work. */
#define OP_STEPS_MAX 0x1p36
/* The same limit for a call on the host, which cannot be interrupted: about a second of work. */
#define OP_STEPS_HOST 0x1p30

/* Returns false and writes a message if `steps` exceeds the call's limit of work. */
bool op_affords(const OpCall *call, double steps);

/* Returns false and writes a message if the call was interrupted. Long loops call it from time to time. */
bool op_goes_on(const OpCall *call);

/* A list of integers that some opsets pass as an attribute and others as an input. */
typedef struct IntList {
    int64_t count; /* -1 = not given */
    int64_t values[TENSOR_RANK_MAX * 2];
} IntList;

bool op_ints(const OpCall *call, const char *attribute, int input, IntList *list);

/* Copies type and shape of input `from` to output 0. */
bool op_same(OpCall *call, int from);

/* --- called by op_accept for operators that lack some variants; they read only attributes --- */

bool batch_accept(const OpCall *call), grid_accept(const OpCall *call),
    resize_accept(const OpCall *call), rnn_accept(const OpCall *call),
    fused_accept(const OpCall *call), heads_accept(const OpCall *call),
    fusedconv_accept(const OpCall *call);

/* --- the tables, one per source file --- */

extern const OpKind ops_unary[], ops_binary[], ops_reduce[], ops_along[], ops_norm[], ops_matmul[],
    ops_conv[], ops_pool[], ops_reshape[], ops_move[], ops_gather[], ops_make[], ops_select[],
    ops_rnn[], ops_resize[], ops_cast[], ops_einsum[], ops_quant[], ops_qmatmul[], ops_qconv[],
    ops_grid[], ops_local[], ops_attention[], ops_rotary[], ops_fused[], ops_heads[],
    ops_group[], ops_fourier[], ops_fusedconv[], ops_loss[], ops_acl[], ops_blas[];

#endif
