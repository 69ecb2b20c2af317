/* op_cast.c: conversions of type, and copies. */
#include "ops/op.h"

#include <string.h>

/* The type for each number of ONNX's TensorProto.DataType. */
static const aclDataType onnx_types[] = {
    [1] = ACL_FLOAT, [2] = ACL_UINT8, [3] = ACL_INT8, [4] = ACL_UINT16, [5] = ACL_INT16,
    [6] = ACL_INT32, [7] = ACL_INT64, [8] = ACL_STRING, [9] = ACL_BOOL, [10] = ACL_FLOAT16,
    [11] = ACL_DOUBLE, [12] = ACL_UINT32, [13] = ACL_UINT64, [16] = ACL_BF16,
};

aclDataType type_from_onnx(int64_t number)
{
    if (number < 1 || number > 16 || (number > 13 && number < 16)) {
        return ACL_DT_UNDEFINED;
    }
    return onnx_types[number];
}

static bool cast_infer(OpCall *call)
{
    op_same(call, 0);
    int64_t to = attr_int(call, "to", 0);
    call->outputs[0].type = type_from_onnx(to);
    if (type_size(call->outputs[0].type) == 0) {
        return op_fail(call, "attribute to: ONNX data type %lld is not supported", (long long)to);
    }
    return true;
}

static bool castlike_infer(OpCall *call)
{
    op_same(call, 0);
    call->outputs[0].type = call->inputs[1]->type;
    return true;
}

static bool aclcast_infer(OpCall *call)
{
    op_same(call, 0);
    int64_t to = attr_int(call, "dst_type", -1);
    call->outputs[0].type = (aclDataType)to;
    if (type_size(call->outputs[0].type) == 0) {
        return op_fail(call, "attribute dst_type: data type %lld is not supported", (long long)to);
    }
    return true;
}

static bool copy_infer(OpCall *call)
{
    return op_same(call, 0);
}

/* Dropout copies its input, because inference drops nothing; the mask is all true. */
static bool dropout_infer(OpCall *call)
{
    const Tensor *ratio = op_input(call, 1), *training = op_input(call, 2);
    bool drops = ratio == NULL || tensor_count(ratio) == 0 || tensor_get_real(ratio, 0) > 0.0;
    if (training != NULL && tensor_count(training) > 0 && tensor_get_int(training, 0) != 0
        && drops) {
        return op_fail(call, "input 2: expected training_mode false, for inference");
    }
    (void)op_same(call, 0);
    if (call->output_count > 1) {
        call->outputs[1] = call->outputs[0];
        call->outputs[1].type = ACL_BOOL;
    }
    return true;
}

static bool dropout_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    if (out->data != NULL) {
        memcpy(out->data, in->data, (size_t)tensor_bytes(in));
    }
    if (call->output_count > 1 && call->outputs[1].data != NULL) {
        memset(call->outputs[1].data, 1, (size_t)tensor_bytes(&call->outputs[1]));
    }
    return true;
}

static bool cast_run(const OpCall *call)
{
    const Tensor *in = call->inputs[0], *out = &call->outputs[0];
    convert(out->data, out->type, in->data, in->type, 1, tensor_count(in));
    return true;
}

const OpKind ops_cast[] = {
    {"Cast", OP_ONNX, 1, 1, 1, 0, cast_infer, NULL, cast_run, 0, 0},
    {"CastLike", OP_ONNX, 2, 2, 1, 0, castlike_infer, NULL, cast_run, 0, 0},
    {"Cast", OP_ACL, 1, 1, 1, 0, aclcast_infer, NULL, cast_run, 0, 0},
    {"Identity", OP_ONNX, 1, 1, 1, 0, copy_infer, NULL, cast_run, 0, OP_VIEW},
    {"Dropout", OP_ONNX, 1, 3, 2, 6, dropout_infer, NULL, dropout_run, 0, OP_VIEW},
    {"TensorMove", OP_ACL, 1, 1, 1, 0, copy_infer, NULL, cast_run, 0, 0},
    {0},
};
