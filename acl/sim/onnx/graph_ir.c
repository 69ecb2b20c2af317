/* graph_ir.c: a graph's memory, values and names, and running a node on the host. See graph_ir.h. */
#include "onnx/graph_ir.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory and names --- */

enum { PILE_BLOCK = 1 << 16, PILE_ALIGN = 64 };

struct PileBlock {
    struct PileBlock *next;
    char padding[PILE_ALIGN - sizeof(struct PileBlock *)];
};

void *pile_take(Pile *pile, size_t bytes)
{
    if (bytes > (size_t)1 << 47) {
        return NULL;
    }
    bytes = (bytes + PILE_ALIGN - 1) / PILE_ALIGN * PILE_ALIGN;
    if (pile->blocks == NULL || bytes > pile->room - pile->used) {
        size_t room = bytes > PILE_BLOCK ? bytes : PILE_BLOCK;
        struct PileBlock *block = aligned_alloc(PILE_ALIGN, sizeof *block + room);
        if (block == NULL) {
            return NULL;
        }
        memset(block + 1, 0, room);
        block->next = pile->blocks;
        pile->blocks = block;
        pile->used = 0;
        pile->room = room;
    }
    char *taken = (char *)(pile->blocks + 1) + pile->used;
    pile->used += bytes;
    return taken;
}

void pile_free(Pile *pile)
{
    while (pile->blocks != NULL) {
        struct PileBlock *next = pile->blocks->next;
        free(pile->blocks);
        pile->blocks = next;
    }
}

void net_explain(Net *net, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(net->message, sizeof net->message, format, args);
    va_end(args);
    if (length >= (int)sizeof net->message) { /* the text was cut, perhaps inside a UTF-8 character */
        size_t end = sizeof net->message - 1;
        while (end > 0 && ((unsigned char)net->message[end - 1] & 0x80U) != 0) {
            end--;
        }
        net->message[end] = '\0';
    }
}

void *net_grow(Net *net, void *items, int count, int *room, size_t size)
{
    if (count < *room) {
        return items;
    }
    int wider = *room == 0 ? 64 : *room > INT_MAX / 4 ? 0 : 2 * *room;
    void *grown = wider == 0 ? NULL : pile_take(&net->pile, (size_t)wider * size);
    if (grown != NULL && count > 0) {
        memcpy(grown, items, (size_t)count * size);
    }
    *room = grown == NULL ? *room : wider;
    return grown;
}

static uint64_t name_hash(const char *name, int scope)
{
    uint64_t hash = 14695981039346656037U ^ (uint64_t)scope;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * 1099511628211U;
    }
    return hash;
}

static NetName *name_slot(const Net *net, const char *name, int scope)
{
    uint64_t at = name_hash(name, scope);
    for (;; at++) {
        NetName *slot = &net->names[at % (uint64_t)net->name_room];
        if (slot->name == NULL || (slot->scope == scope && strcmp(slot->name, name) == 0)) {
            return slot;
        }
    }
}

/* Makes room: the table is at most half full, so that each search ends. */
static bool names_widen(Net *net)
{
    if (net->name_count * 2 < net->name_room) {
        return true;
    }
    const NetName *before = net->names;
    int room = net->name_room, wider = room == 0 ? 256 : room > INT_MAX / 8 ? 0 : room * 4;
    NetName *names = wider == 0 ? NULL : pile_take(&net->pile, (size_t)wider * sizeof *names);
    if (names == NULL) {
        return false;
    }
    net->names = names;
    net->name_room = wider;
    for (int i = 0; i < room; i++) {
        if (before[i].name != NULL) {
            *name_slot(net, before[i].name, before[i].scope) = before[i];
        }
    }
    return true;
}

const NetName *net_name(const Net *net, const char *name, int scope)
{
    const NetName *slot = net->name_room == 0 ? NULL : name_slot(net, name, scope);
    return slot == NULL || slot->name == NULL ? NULL : slot;
}

bool net_name_set(Net *net, const char *name, int scope, int value)
{
    if (!names_widen(net)) {
        return false;
    }
    NetName *slot = name_slot(net, name, scope);
    net->name_count += slot->name == NULL;
    *slot = (NetName){name, scope, value};
    return true;
}

int net_value_new(Net *net, const char *name, Body *body)
{
    NetValue *values =
        net_grow(net, net->values, net->value_count, &net->value_room, sizeof *values);
    if (values == NULL) {
        return -1;
    }
    net->values = values;
    values[net->value_count] = (NetValue){
        .name = name, .type = ACL_DT_UNDEFINED, .rank = -1, .producer = -1, .last_use = -1,
        .owner = body->id, .sibling = body->first_value,
    };
    body->first_value = net->value_count;
    return net->value_count++;
}

int net_value(Net *net, const char *name)
{
    const NetName *known = net_name(net, name, 0);
    if (known != NULL) {
        return known->value;
    }
    int value = net_value_new(net, name, &net->main);
    return value >= 0 && net_name_set(net, name, 0, value) ? value : -1;
}

int64_t net_attr_int(const NetNode *node, const char *name, int64_t otherwise)
{
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        if (attr->kind == ATTR_INT && strcmp(attr->name, name) == 0) {
            return attr->i;
        }
    }
    return otherwise;
}

const char *node_name(const Net *net, const NetNode *node)
{
    if (node->name[0] != '\0') {
        return node->name;
    }
    return node->output_count > 0 && node->outputs[0] >= 0 ? net->values[node->outputs[0]].name
                                                           : "without a name";
}

void net_free(Net *net)
{
    pile_free(&net->pile);
    memset(net, 0, sizeof *net);
}

/* --- running one node on the host --- */

bool node_run_host(
    const NetNode *node, const Tensor **inputs, Tensor *outputs, int64_t most, char *message)
{
    OpCall call = {
        .kind = node->kind,
        .attrs = &node->attrs,
        .opset = node->opset,
        .threads = 1,
        .steps_max = OP_STEPS_HOST,
        .message = message,
        .input_count = node->input_count,
        .output_count = node->output_count,
        .inputs = inputs,
        .outputs = outputs,
    };
    if (!op_infer(&call)) {
        return false;
    }
    int64_t room = op_workspace(&call);
    call.workspace = room > 0 ? malloc((size_t)room) : NULL;
    bool done = room <= 0 || call.workspace != NULL;
    if (!done) {
        (void)snprintf(message, OP_MESSAGE_ROOM, "no host memory");
    }
    for (int i = 0; done && i < node->output_count; i++) {
        int64_t bytes = tensor_bytes(&outputs[i]);
        outputs[i].data = bytes > most ? NULL : malloc((size_t)bytes + 1);
        done = outputs[i].data != NULL;
        if (!done) {
            (void)snprintf(message, OP_MESSAGE_ROOM,
                "output %d has %lld bytes, which is more than the host has or a constant may have "
                "(%lld)", i, (long long)bytes, (long long)most);
        }
    }
    done = done && op_run(&call);
    free(call.workspace);
    for (int i = 0; !done && i < node->output_count; i++) {
        free(outputs[i].data);
        outputs[i].data = NULL;
    }
    return done;
}
