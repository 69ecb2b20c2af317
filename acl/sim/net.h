/* net.h: a model as the node loop needs it: values, nodes in order, constants.

   `onnx_read` makes one from a file's bytes, `net_prepare` orders and folds it. After that a graph
   does not change, so any number of runs may use it at once. All of its memory is one pile. */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "op.h"

enum { NET_MESSAGE_ROOM = 512 };

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
    int producer;           /* node, -1 for inputs and initializers */
    int last_use; /* node after which nobody reads it; -1 nobody ever, INT_MAX an output */
    bool host;              /* known on the calling thread: shape arithmetic */
    bool on_device;         /* some device node reads it */
} NetValue;

typedef struct NetNode {
    const char *name;
    const char *type;
    const char *domain;
    const OpKind *kind;
    AttrList attrs;
    int input_count, output_count;
    int *inputs;            /* values; -1 = left out */
    int *outputs;
    bool host;
} NetNode;

typedef struct Net {
    Pile pile;
    const char *name;
    const char *folder;     /* where external data lies; NULL = nowhere */
    int opset;
    int value_count, node_count, input_count, output_count;
    int value_room, node_room;
    NetValue *values;
    NetNode *nodes;
    int *inputs, *outputs;  /* values */
    int *names;             /* hash table of values by name, name_room entries */
    int name_room;
    char message[NET_MESSAGE_ROOM];
} Net;

/* False with net->message; the graph must be freed in either case. */
bool onnx_read(Net *net, const void *bytes, size_t length, const char *folder);
bool net_prepare(Net *net);
void net_free(Net *net);

/* Whether the bytes look like an ONNX model at all. */
bool onnx_recognise(const void *bytes, size_t length);

/* --- for onnx.c and net.c --- */

void net_explain(Net *net, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define net_fail(...) (net_explain(__VA_ARGS__), false)

/* The value of that name, made if it is new; -1 without memory. */
int net_value(Net *net, const char *name);

/* Room for one more of `size` bytes in an array; NULL without memory. Doubles as it grows. */
void *net_grow(Net *net, void *items, int count, int *room, size_t size);

/* Runs one node on the host into outputs of malloc'ed memory (or NULL where not wanted). */
bool node_run_host(
    const NetNode *node, int opset, const Tensor **inputs, Tensor *outputs, char *message);

#endif
