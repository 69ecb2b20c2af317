/* onnxread.h: what the files that read ONNX share (onnx.c, onnxnode.c, onnxattr.c,
   onnxtensor.c). */
#ifndef SIM_ONNXREAD_H
#define SIM_ONNXREAD_H

#include "onnx/graph_ir.h"
#include "base/proto.h"

enum { DEPTH_MAX = 16 }; /* graphs and functions within each other */

/* A function that the model defines: read anew, in place of the node, wherever it is used. */
typedef struct Function {
    const char *name;
    const char *domain;
    ProtoField message;
} Function;

typedef struct Reader {
    Net *net;
    Body *body;             /* that nodes and values are added to */
    int scope;              /* that names are looked up in first */
    int *parents;           /* the scope around each scope, -1 = none */
    int scope_count, scope_room;
    int body_count;
    int depth;              /* of graphs and functions within each other */
    int opset;
    const AttrList *given;  /* within a function: the attributes of its use */
    Function *functions;
    int function_count;
} Reader;

/* --- onnxtensor.c --- */

const char *text_take(Net *net, const ProtoField *field);
bool text_read(Net *net, const ProtoField *field, const char **text);

/* Counts the numbers of a field: a packed list, or one. `bytes` is 0 for varints. */
int64_t numbers_count(const ProtoField *field, unsigned bytes);

typedef bool (*NumberSink)(void *context, uint64_t value);
bool numbers_read(const ProtoField *field, unsigned bytes, NumberSink sink, void *context);

bool tensor_read(Net *net, const ProtoField *message, Tensor *tensor, const char **name);

/* --- onnxattr.c --- */

/* Reads one attribute of a node; *kept is false for one that the function's use left out. */
bool attr_read(Reader *reader, const ProtoField *message, Attr *attr, bool *kept);

/* --- onnxnode.c --- */

/* A scope inside `parent`, -1 = around which there is nothing; -1 without memory. */
int scope_new(Reader *reader, int parent);

/* The value that a name is given to in the innermost scope. */
bool name_define(Reader *reader, const char *name, int *value);

/* The value of a name in a field: given to it, if `define`, else what it means there. */
bool value_read(Reader *reader, const ProtoField *field, bool define, int *value);

/* Remembers that a body reads a value of another. */
bool capture(Net *net, Body *body, int value);

bool domain_plain(const char *domain);
bool node_read(Reader *reader, const ProtoField *message);

/* --- onnx.c --- */

/* Takes the operator set's version, if the message is about ONNX's own operators. */
bool opset_read(Reader *reader, const ProtoField *message);

/* A subgraph, in a scope of its own; NULL with net->message. */
Body *subgraph_read(Reader *reader, const ProtoField *message);

#endif
