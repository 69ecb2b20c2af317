/* graph_ir.h: a model in the form that the node loop runs: values, constants, and bodies, which are
   ordered lists of nodes.

   `onnx_read` makes a Net from a file's bytes; `net_prepare` orders its nodes and computes those
   whose inputs are all constant. After that a Net does not change, so any number of runs may use it
   at the same time. All of its memory is freed at once (Pile).

   The model's own graph is a body, and so is each subgraph of an If, a Loop or a Scan. ONNX has no
   recursion, so the values of all bodies are in one table, and each value belongs to one body. If a
   body reads values of the bodies around it, they become further inputs of the node that has the
   body. */
#ifndef SIM_GRAPH_IR_H
#define SIM_GRAPH_IR_H

#include "ops/op.h"

enum { NET_MESSAGE_ROOM = 512 };

/* The most bytes that a value of shape arithmetic may have. */
#define HOST_VALUE_MAX ((int64_t)1 << 30)
/* Limits of the memory for folded constants: in total, and for each byte of the file, because a
   file of a hundred bytes can ask for any size. */
#define FOLDED_MAX ((int64_t)1 << 28)
#define FOLDED_RATIO 64

/* Memory that is freed all at once. */
typedef struct Pile {
    struct PileBlock *blocks;
    size_t used, room; /* bytes of the newest block */
} Pile;

void *pile_take(Pile *pile, size_t bytes); /* returns zeroed, 64-byte aligned memory; NULL without memory */
void pile_free(Pile *pile);

typedef struct NetValue {
    const char *name;
    aclDataType type;       /* the declared type; ACL_DT_UNDEFINED if none is declared */
    int rank;               /* the declared rank; -1 if none is declared */
    int64_t dims[TENSOR_RANK_MAX]; /* -1 = dynamic */
    const char *dim_names[TENSOR_RANK_MAX];
    Tensor *constant;       /* the value, if it is constant */
    int owner;              /* id of the body that it belongs to */
    int sibling;            /* the next value of that body, -1 = the last */
    int producer;           /* index of the node that computes it; -1 for inputs and initializers */
    int last_use;           /* index of the last node that computes or reads it; -1: none does; INT_MAX: an output */
    bool no_tensor;         /* declared as a sequence or another type that is not a tensor */
    bool host;              /* the calling thread computes it (shape arithmetic) */
    bool on_device;         /* a node on the device reads it, or it is an output of the model */
} NetValue;

/* Nodes that the node loop runs itself, without a kernel: nodes with bodies, and nodes on
   sequences. */
typedef enum Control {
    CONTROL_NONE,
    CONTROL_IF,
    CONTROL_LOOP,
    CONTROL_SCAN,
    CONTROL_CONSTRUCT, /* also SequenceEmpty, which has no items */
    CONTROL_INSERT,
    CONTROL_ERASE,
    CONTROL_AT,
    CONTROL_LENGTH,
    CONTROL_CONCAT,
    CONTROL_SPLIT,
} Control;

enum { BODIES_MAX = 2 };

typedef struct Body Body;

typedef struct NetNode {
    const char *name;
    const char *type;
    const char *domain;
    const OpKind *kind;     /* NULL for control flow, see `control` */
    int opset;
    AttrList attrs;
    int input_count, output_count;
    int *inputs;            /* indices of values; -1 = left out */
    int *outputs;
    bool host;
    Control control;
    int own_inputs;         /* of a control node: number of inputs in the file; the values that its bodies capture
                               follow them */
    Body *bodies[BODIES_MAX]; /* an If has two, then and else; a Loop or a Scan has one */
} NetNode;

struct Body {
    int id;
    int node_count, node_room;
    NetNode *nodes;
    int input_count, output_count;
    int *inputs, *outputs;  /* indices of values */
    int capture_count, capture_room;
    int *captures;          /* values of other bodies that this body reads */
    int first_value;        /* first of the values of this body, -1 = none; `sibling` leads to the others */
};

/* The value of a name in a scope. A scope is the model's graph, a subgraph, or one use of a
   function. */
typedef struct NetName {
    const char *name;
    int scope;
    int value;              /* -1: an input that the function's caller left out */
} NetName;

typedef struct Net {
    Pile pile;
    const char *name;
    const char *folder;     /* folder of external data; NULL = there is none */
    int opset;
    int value_count, input_count, output_count;
    int value_room;
    NetValue *values;
    Body main;
    int *inputs, *outputs;  /* indices of the values that are the inputs and outputs of `main` */
    int name_count, name_room;
    NetName *names;         /* hash table of all names */
    int64_t folded;         /* bytes of the constants that were computed at load */
    int64_t folded_max;     /* upper limit of `folded` */
    char message[NET_MESSAGE_ROOM];
} Net;

/* Reads a model. On failure returns false and sets net->message. The Net must be freed in either case. */
bool onnx_read(Net *net, const void *bytes, size_t length, const char *folder);
bool net_prepare(Net *net);
void net_free(Net *net);

/* True if the bytes look like an ONNX model at all. */
bool onnx_recognise(const void *bytes, size_t length);

/* --- for onnx.c and graph_ir.c --- */

void net_explain(Net *net, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define net_fail(...) (net_explain(__VA_ARGS__), false)

/* Returns the entry of a name in exactly that scope if it has a value, or NULL. */
const NetName *net_name(const Net *net, const char *name, int scope);

/* Sets the value of a name in a scope where the name has none yet. False if there is no memory. */
bool net_name_set(Net *net, const char *name, int scope, int value);

/* Returns a new value of a body; -1 if there is no memory. */
int net_value_new(Net *net, const char *name, Body *body);

/* Returns the value of that name in the model's own graph, and makes it if there is none; -1 if
   there is no memory. */
int net_value(Net *net, const char *name);

/* Returns an integer attribute of a node, or `otherwise`. */
int64_t net_attr_int(const NetNode *node, const char *name, int64_t otherwise);

/* Returns a node's name, or that of its first output, for messages. */
const char *node_name(const Net *net, const NetNode *node);

/* Makes room in an array for one more item of `size` bytes, by doubling its size. Returns the
   array, or NULL if there is no memory. */
void *net_grow(Net *net, void *items, int count, int *room, size_t size);

/* Runs one node on the host, with outputs in malloc'ed memory (or NULL for unwanted ones).
   Refuses an output of more than `most` bytes before it is allocated. */
bool node_run_host(
    const NetNode *node, const Tensor **inputs, Tensor *outputs, int64_t most, char *message);

#endif
