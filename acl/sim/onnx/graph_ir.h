/* graph_ir.h: a model as the node loop needs it: values, bodies of nodes in order, constants.

   `onnx_read` makes one from a file's bytes, `net_prepare` orders and folds it. After that a graph
   does not change, so any number of runs may use it at once. All of its memory is one pile.

   The model's own graph is a body, and so is each subgraph of an If, a Loop or a Scan. ONNX has no
   recursion, so the values of all bodies stand in one table, each owned by one body; what a body
   reads of those around it is a further input of the node that the body belongs to. */
#ifndef SIM_GRAPH_IR_H
#define SIM_GRAPH_IR_H

#include "ops/op.h"

enum { NET_MESSAGE_ROOM = 512 };

/* The most bytes that a value of shape arithmetic may have. */
#define HOST_VALUE_MAX ((int64_t)1 << 30)
/* Limits of the memory for folded constants: in all, and for each byte of the file, because a file
   of a hundred bytes can ask for any size. */
#define FOLDED_MAX ((int64_t)1 << 28)
#define FOLDED_RATIO 64

/* Memory that is freed all at once. */
typedef struct Pile {
    struct PileBlock *blocks;
    size_t used, room; /* of the newest block */
} Pile;

void *pile_take(Pile *pile, size_t bytes); /* zeroed, 64-byte aligned; NULL without memory */
void pile_free(Pile *pile);

typedef struct NetValue {
    const char *name;
    aclDataType type;       /* as declared; ACL_DT_UNDEFINED if nothing is said */
    int rank;               /* as declared; -1 if nothing is said */
    int64_t dims[TENSOR_RANK_MAX]; /* -1 = dynamic */
    const char *dim_names[TENSOR_RANK_MAX];
    Tensor *constant;       /* the value, if it never changes */
    int owner;              /* the body that it belongs to */
    int sibling;            /* the next value of that body, -1 = the last */
    int producer;           /* node of its body, -1 for inputs and initializers */
    int last_use; /* last node that reads it; -1: none reads it, INT_MAX: an output */
    bool no_tensor;         /* declared as a sequence or the like */
    bool host;              /* known on the calling thread: shape arithmetic */
    bool on_device;         /* some device node reads it */
} NetValue;

/* Nodes that the loop itself runs, not a kernel: those with bodies, and those on sequences. */
typedef enum Control {
    CONTROL_NONE,
    CONTROL_IF,
    CONTROL_LOOP,
    CONTROL_SCAN,
    CONTROL_CONSTRUCT, /* SequenceEmpty is one of nothing */
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
    int *inputs;            /* values; -1 = left out */
    int *outputs;
    bool host;
    Control control;
    int own_inputs;         /* of a control node: the file's; what its bodies capture follows */
    Body *bodies[BODIES_MAX]; /* then, else; or the one */
} NetNode;

struct Body {
    int id;
    int node_count, node_room;
    NetNode *nodes;
    int input_count, output_count;
    int *inputs, *outputs;  /* values */
    int capture_count, capture_room;
    int *captures;          /* values of other bodies that it reads */
    int first_value;        /* of those that it owns, -1 = none; then by `sibling` */
};

/* What a name means in a scope: the model's graph, a subgraph, or one use of a function. */
typedef struct NetName {
    const char *name;
    int scope;
    int value;              /* -1: an input that the function's caller left out */
} NetName;

typedef struct Net {
    Pile pile;
    const char *name;
    const char *folder;     /* where external data lies; NULL = nowhere */
    int opset;
    int value_count, input_count, output_count;
    int value_room;
    NetValue *values;
    Body main;
    int *inputs, *outputs;  /* values; those of `main` */
    int name_count, name_room;
    NetName *names;         /* hash table */
    int64_t folded;         /* bytes of the constants that were computed here, */
    int64_t folded_max;     /* and how many there may be */
    char message[NET_MESSAGE_ROOM];
} Net;

/* False with net->message; the graph must be freed in either case. */
bool onnx_read(Net *net, const void *bytes, size_t length, const char *folder);
bool net_prepare(Net *net);
void net_free(Net *net);

/* True if the bytes look like an ONNX model at all. */
bool onnx_recognise(const void *bytes, size_t length);

/* --- for onnx.c and graph_ir.c --- */

void net_explain(Net *net, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define net_fail(...) (net_explain(__VA_ARGS__), false)

/* What the name means in that very scope: an entry with a value, or NULL. */
const NetName *net_name(const Net *net, const char *name, int scope);

/* Gives a name a meaning; the name must not have one in that scope. False without memory. */
bool net_name_set(Net *net, const char *name, int scope, int value);

/* A new value of a body; -1 without memory. */
int net_value_new(Net *net, const char *name, Body *body);

/* The value of that name in the model's own graph, made if it is new; -1 without memory. */
int net_value(Net *net, const char *name);

/* An integer attribute of a node. */
int64_t net_attr_int(const NetNode *node, const char *name, int64_t otherwise);

/* A node's name, or that of its first output, for messages. */
const char *node_name(const Net *net, const NetNode *node);

/* Room for one more of `size` bytes in an array; NULL without memory. Doubles as it grows. */
void *net_grow(Net *net, void *items, int count, int *room, size_t size);

/* Runs one node on the host into outputs of malloc'ed memory (or NULL where not wanted); an output of
   more than `most` bytes is refused before it is made. */
bool node_run_host(
    const NetNode *node, const Tensor **inputs, Tensor *outputs, int64_t most, char *message);

#endif
