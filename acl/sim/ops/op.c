/* op.c: functions with which operators read their call: attributes, lists of integers, limits of work. See op.h. */
#include "ops/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void op_explain(const OpCall *call, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(call->message, OP_MESSAGE_ROOM, format, args);
    va_end(args);
}

/* --- attributes --- */

const Attr *attr_find(const OpCall *call, const char *name)
{
    if (call->attrs == NULL) {
        return NULL;
    }
    for (int i = 0; i < call->attrs->count; i++) {
        if (strcmp(call->attrs->items[i].name, name) == 0) {
            return &call->attrs->items[i];
        }
    }
    return NULL;
}

int64_t attr_int(const OpCall *call, const char *name, int64_t otherwise)
{
    const Attr *attr = attr_find(call, name);
    return attr != NULL && attr->kind == ATTR_INT ? attr->i : otherwise;
}

double attr_float(const OpCall *call, const char *name, double otherwise)
{
    const Attr *attr = attr_find(call, name);
    if (attr == NULL || (attr->kind != ATTR_INT && attr->kind != ATTR_FLOAT)) {
        return (double)(float)otherwise; /* attributes are float32: round the default likewise */
    }
    return attr->kind == ATTR_INT ? (double)attr->i : attr->f;
}

const char *attr_string(const OpCall *call, const char *name, const char *otherwise)
{
    const Attr *attr = attr_find(call, name);
    return attr != NULL && attr->kind == ATTR_STRING ? attr->s : otherwise;
}

static bool ints_of_tensor(const OpCall *call, const Tensor *tensor, const char *what,
    IntList *list)
{
    enum { ROOM = sizeof list->values / sizeof list->values[0] };
    list->count = tensor_count(tensor);
    if (list->count > ROOM || tensor->rank > 1 || !type_is_integer(tensor->type)) {
        char text[128];
        return op_fail(call, "%s: expected a vector of at most %d integers, got %s of shape %s", what,
            (int)ROOM, type_name(tensor->type), shape_text(tensor, text, sizeof text));
    }
    for (int64_t i = 0; i < list->count; i++) {
        list->values[i] = tensor_get_int(tensor, i);
    }
    return true;
}

bool op_ints(const OpCall *call, const char *attribute, int input, IntList *list)
{
    enum { ROOM = sizeof list->values / sizeof list->values[0] };
    list->count = -1;
    const Tensor *tensor = input < 0 ? NULL : op_input(call, input);
    if (tensor != NULL) {
        return ints_of_tensor(call, tensor, attribute, list);
    }
    const Attr *attr = attr_find(call, attribute);
    if (attr == NULL) {
        return true;
    }
    if (attr->kind == ATTR_INT) {
        list->count = 1;
        list->values[0] = attr->i;
        return true;
    }
    if (attr->kind != ATTR_INTS || attr->count > ROOM) {
        return op_fail(call, "attribute %s: expected at most %d integers", attribute, (int)ROOM);
    }
    list->count = attr->count;
    for (int64_t i = 0; i < attr->count; i++) {
        list->values[i] = attr->ints[i];
    }
    return true;
}

bool op_affords(const OpCall *call, double steps)
{
    double most = call->steps_max > 0 ? call->steps_max : OP_STEPS_MAX;
    return steps <= most
        || op_fail(
            call, "the attributes ask for %.3g steps; the work limit is %.3g", steps, most);
}

bool op_goes_on(const OpCall *call)
{
    return call->interrupted == NULL || !call->interrupted()
        || op_fail(call, "interrupted: its stream was aborted or is being destroyed");
}

bool op_same(OpCall *call, int from)
{
    call->outputs[0].type = call->inputs[from]->type;
    tensor_shape_copy(&call->outputs[0], call->inputs[from]);
    return true;
}
