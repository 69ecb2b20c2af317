/* onnxread.h: the interface between the files that read ONNX (onnx.c, onnxnode.c, onnxattr.c,
   onnxtensor.c). */
#ifndef SIM_ONNXREAD_H
#define SIM_ONNXREAD_H

#include "onnx/graph_ir.h"
#include "base/proto.h"

enum { DEPTH_MAX = 16 }; /* how deep graphs and functions may be nested */

/* A function that the model defines. Its nodes are read again at each use, in place of the node that uses it. */
typedef struct Function {
    const char *name;
    const char *domain;
    ProtoField message;
} Function;

typedef struct Reader {
    Net *net;
    Body *body;             /* the body to which nodes and values are added */
    int scope;              /* the scope in which names are looked up first */
    int *parents;           /* for each scope, the scope around it; -1 = none */
    int scope_count, scope_room;
    int body_count;
    int depth;              /* present depth of nested graphs and functions */
    int opset;
    const AttrList *given;  /* inside a function: the attributes of the node that uses it */
    Function *functions;
    int function_count;
} Reader;

/* --- onnxtensor.c --- */

const char *text_take(Net *net, const ProtoField *field);
bool text_read(Net *net, const ProtoField *field, const char **text);

/* Returns how many numbers a field has: a packed list, or one. `bytes` is 0 for varints. */
int64_t numbers_count(const ProtoField *field, unsigned bytes);

typedef bool (*NumberSink)(void *context, uint64_t value);
bool numbers_read(const ProtoField *field, unsigned bytes, NumberSink sink, void *context);

bool tensor_read(Net *net, const ProtoField *message, Tensor *tensor, const char **name);

/* --- onnxattr.c --- */

/* Reads one attribute of a node; *kept is false if it refers to an attribute that the function's
   use does not have. */
bool attr_read(Reader *reader, const ProtoField *message, Attr *attr, bool *kept);

/* --- onnxnode.c --- */

/* Makes a scope inside `parent` (-1 = no scope is around it); returns -1 without memory. */
int scope_new(Reader *reader, int parent);

/* Gives a name a new value in the innermost scope. */
bool name_define(Reader *reader, const char *name, int *value);

/* Gives the value of the name in a field: a new value if `define`, else the value that the name has. */
bool value_read(Reader *reader, const ProtoField *field, bool define, int *value);

/* Notes that a body reads a value of another body. */
bool capture(Net *net, Body *body, int value);

bool domain_plain(const char *domain);
bool node_read(Reader *reader, const ProtoField *message);

/* --- onnx.c --- */

/* Reads the operator set's version, if the message is about ONNX's own operators. */
bool opset_read(Reader *reader, const ProtoField *message);

/* Reads a subgraph, in a scope of its own. On failure returns NULL and sets net->message. */
Body *subgraph_read(Reader *reader, const ProtoField *message);

#endif
