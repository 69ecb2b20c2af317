/* opform.c: what each operator accepts: its attributes, the inputs that must hold exactly one
   value, and the sets of inputs that must have the same type.

   An attribute that is not listed is refused, because ignoring it could give a wrong result without
   any message. Names that begin with an underscore are hints of frameworks to a compiler; they do
   not change the result.

   A list has NAME:KIND for each attribute. Kinds: i an integer, f a number, s a string, t a tensor,
   and I, F, S lists of them. NAME:KIND=VALUE: only that value is supported. */
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"

typedef struct Form {
    const char *name;
    OpDomain domain;
    const char *attributes;
    unsigned scalars;       /* bit i: input i, if given, has one element */
    unsigned same[3];       /* bit masks of inputs; all inputs in one mask must have the same type */
} Form;

/* Sorted by name, then by domain. Operators that are not here have no attributes. */
static const Form forms[] = {
    {"Add", OP_ONNX, "broadcast:i", 0, {3}},
    {"AddN", OP_ACL, "N:i", 0, {0}},
    {"And", OP_ONNX, "broadcast:i", 0, {3}},
    {"ArgMax", OP_ONNX, "axis:i keepdims:i select_last_index:i", 0, {0}},
    {"ArgMaxD", OP_ACL, "dimension:i", 0, {0}},
    {"ArgMaxV2", OP_ACL, "dtype:i keep_dims:i", 2, {0}}, /* torch_npu sets keep_dims */
    {"ArgMaxWithValue", OP_ACL, "dimension:i keep_dims:i", 0, {0}},
    {"ArgMin", OP_ONNX, "axis:i keepdims:i select_last_index:i", 0, {0}},
    {"ArgMinD", OP_ACL, "dimension:i", 0, {0}},
    {"ArgMinWithValue", OP_ACL, "dimension:i keep_dims:i", 0, {0}},
    {"Attention", OP_ONNX,
        "is_causal:i kv_num_heads:i left_window_size:i q_num_heads:i qk_matmul_output_mode:i "
        "right_window_size:i scale:f softcap:f softmax_precision:i", 0, {19, 36}},
    {"Attention", OP_ORT,
        "do_rotary:i mask_filter_value:f num_heads:i past_present_share_buffer:i "
        "qkv_hidden_sizes:I rotary_embedding_dim:i scale:f unidirectional:i", 0, {55}},
    {"AveragePool", OP_ONNX,
        "auto_pad:s ceil_mode:i count_include_pad:i dilations:I kernel_shape:I pads:I "
        "strides:I", 0, {0}},
    {"Axpy", OP_ACL, "alpha:f", 0, {0}},
    {"BatchMatMul", OP_ACL, "adj_x1:i adj_x2:i", 0, {0}},
    {"BatchMatMulV2", OP_ACL, "adj_x1:i adj_x2:i offset_x:i=0", 0, {0}},
    {"BatchNormalization", OP_ONNX,
        "epsilon:f is_test:i momentum:f spatial:i=1 training_mode:i", 0, {0}},
    {"BitShift", OP_ONNX, "direction:s", 0, {3}},
    {"BitwiseAnd", OP_ONNX, "", 0, {3}},
    {"BitwiseOr", OP_ONNX, "", 0, {3}},
    {"BitwiseXor", OP_ONNX, "", 0, {3}},
    {"BlackmanWindow", OP_ONNX, "output_datatype:i periodic:i", 1, {0}},
    {"BroadcastToD", OP_ACL, "shape:I", 0, {0}},
    {"Cast", OP_ONNX, "round_mode:s saturate:i to:i", 0, {0}},
    {"Cast", OP_ACL, "dst_type:i truncate:i", 0, {0}},
    {"CastLike", OP_ONNX, "round_mode:s saturate:i", 0, {0}},
    {"Celu", OP_ONNX, "alpha:f", 0, {0}},
    {"CenterCropPad", OP_ONNX, "axes:I", 0, {0}},
    {"Clip", OP_ONNX, "max:f min:f", 6, {7}},
    {"ClipByValue", OP_ACL, "", 6, {7}},
    {"ClipByValueV2", OP_ACL, "", 6, {7}},
    {"Col2Im", OP_ONNX, "dilations:I pads:I strides:I", 0, {0}},
    {"Compress", OP_ONNX, "axis:i", 0, {0}},
    {"Concat", OP_ONNX, "axis:i", 0, {0}},
    {"ConcatD", OP_ACL, "concat_dim:i N:i", 0, {0}},
    {"ConstantOfShape", OP_ONNX, "value:t", 0, {0}},
    {"Conv", OP_ONNX, "auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I", 0, {7}},
    {"ConvInteger", OP_ONNX,
        "auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I", 0, {5, 10}},
    {"ConvTranspose", OP_ONNX,
        "auto_pad:s dilations:I group:i kernel_shape:I output_padding:I output_shape:I pads:I "
        "strides:I", 0, {7}},
    {"CumSum", OP_ONNX, "exclusive:i reverse:i", 2, {0}},
    {"Cumsum", OP_ACL, "exclusive:i reverse:i", 2, {0}},
    {"DFT", OP_ONNX, "axis:i inverse:i onesided:i", 6, {0}},
    {"DepthToSpace", OP_ONNX, "blocksize:i mode:s", 0, {0}},
    {"DequantizeLinear", OP_ONNX, "axis:i block_size:i output_dtype:i", 0, {5}},
    {"Div", OP_ONNX, "broadcast:i", 0, {3}},
    {"Dropout", OP_ONNX, "is_test:i ratio:f seed:i", 0, {0}},
    {"Einsum", OP_ONNX, "equation:s", 0, {0}},
    {"Elu", OP_ONNX, "alpha:f", 0, {0}},
    {"Elu", OP_ACL, "alpha:f scale:f input_scale:f", 0, {0}},
    {"EmbedLayerNormalization", OP_ORT, "epsilon:f mask_index_type:i", 0, {0}},
    {"Equal", OP_ONNX, "broadcast:i", 0, {3}},
    {"Exp", OP_ACL, "base:f scale:f shift:f", 0, {0}},
    {"ExpandD", OP_ACL, "shape:I", 0, {0}},
    {"EyeLike", OP_ONNX, "dtype:i k:i", 0, {0}},
    {"FillD", OP_ACL, "dims:I", 0, {0}},
    {"Flatten", OP_ONNX, "axis:i", 0, {0}},
    {"FusedConv", OP_ORT,
        "activation:s activation_params:F auto_pad:s dilations:I group:i kernel_shape:I "
        "pads:I strides:I", 0, {0}},
    {"FusedMatMul", OP_ORT, "alpha:f transA:i transB:i transBatchA:i transBatchB:i", 0, {3}},
    {"GEMM", OP_ACL, "transpose_a:i transpose_b:i", 0, {0}},
    {"GRU", OP_ONNX,
        "activation_alpha:F activation_beta:F activations:S clip:f direction:s hidden_size:i "
        "layout:i linear_before_reset:i output_sequence:i", 0, {47}},
    {"Gather", OP_ONNX, "axis:i", 0, {0}},
    {"GatherElements", OP_ONNX, "axis:i", 0, {0}},
    {"GatherND", OP_ONNX, "batch_dims:i", 0, {0}},
    {"GatherV2", OP_ACL, "batch_dims:i=0 negative_index_support:i", 4, {0}},
    {"GatherV2D", OP_ACL, "axis:i", 0, {0}},
    {"Gelu", OP_ONNX, "approximate:s", 0, {0}},
    {"Gemm", OP_ONNX, "alpha:f beta:f broadcast:i transA:i transB:i", 0, {7}},
    {"GlobalLpPool", OP_ONNX, "p:i", 0, {0}},
    {"Greater", OP_ONNX, "broadcast:i", 0, {3}},
    {"GreaterOrEqual", OP_ONNX, "", 0, {3}},
    {"GridSample", OP_ONNX, "align_corners:i mode:s padding_mode:s", 0, {0}},
    {"GroupNormalization", OP_ONNX, "epsilon:f num_groups:i stash_type:i", 0, {0}},
    {"GroupQueryAttention", OP_ORT,
        "do_rotary:i k_quant_type:s kv_cache_bit_width:i=0 kv_num_heads:i local_window_size:i "
        "num_heads:i qk_output:i rotary_interleaved:i scale:f sliding_window:i "
        "smooth_softmax:i softcap:f v_quant_type:s", 0, {415}},
    {"HammingWindow", OP_ONNX, "output_datatype:i periodic:i", 1, {0}},
    {"HannWindow", OP_ONNX, "output_datatype:i periodic:i", 1, {0}},
    {"HardSigmoid", OP_ONNX, "alpha:f beta:f", 0, {0}},
    {"HardSigmoid", OP_ACL, "alpha:f beta:f", 0, {0}},
    {"Hardmax", OP_ONNX, "axis:i", 0, {0}},
    {"InstanceNormalization", OP_ONNX, "epsilon:f", 0, {0}},
    {"IsInf", OP_ONNX, "detect_negative:i detect_positive:i", 0, {0}},
    {"LRN", OP_ONNX, "alpha:f beta:f bias:f size:i", 0, {0}},
    {"LSTM", OP_ONNX,
        "activation_alpha:F activation_beta:F activations:S clip:f direction:s hidden_size:i "
        "input_forget:i layout:i output_sequence:i", 0, {239}},
    {"LayerNorm", OP_ACL, "begin_norm_axis:i begin_params_axis:i epsilon:f", 0, {0}},
    {"LayerNormalization", OP_ONNX, "axis:i epsilon:f stash_type:i", 0, {0}},
    {"LeakyRelu", OP_ONNX, "alpha:f", 0, {0}},
    {"Less", OP_ONNX, "broadcast:i", 0, {3}},
    {"LessOrEqual", OP_ONNX, "", 0, {3}},
    {"Log", OP_ACL, "base:f scale:f shift:f", 0, {0}},
    {"LogSoftmax", OP_ONNX, "axis:i", 0, {0}},
    {"LogSoftmaxV2", OP_ACL, "axes:I axis:i", 0, {0}},
    {"LpNormalization", OP_ONNX, "axis:i p:i", 0, {0}},
    {"LpPool", OP_ONNX,
        "auto_pad:s ceil_mode:i dilations:I kernel_shape:I p:i pads:I strides:I", 0, {0}},
    {"MaskedFill", OP_ACL, "", 4, {0}},
    {"MatMul", OP_ONNX, "", 0, {3}},
    {"MatMul", OP_ACL, "transpose_x1:i transpose_x2:i", 0, {0}},
    {"MatMulInteger", OP_ONNX, "", 0, {5, 10}},
    {"MatMulV2", OP_ACL, "transpose_x1:i transpose_x2:i offset_x:i=0", 0, {0}},
    {"Max", OP_ACL, "N:i", 0, {0}},
    {"MaxPool", OP_ONNX,
        "auto_pad:s ceil_mode:i dilations:I kernel_shape:I pads:I storage_order:i "
        "strides:I", 0, {0}},
    {"Mod", OP_ONNX, "fmod:i", 0, {3}},
    {"Mul", OP_ONNX, "broadcast:i", 0, {3}},
    {"MultiHeadAttention", OP_ORT,
        "mask_filter_value:f num_heads:i scale:f unidirectional:i", 0, {239}},
    {"NegativeLogLikelihoodLoss", OP_ONNX, "ignore_index:i reduction:s", 0, {0}},
    {"NonMaxSuppression", OP_ONNX, "center_point_box:i", 0, {0}},
    {"NonZero", OP_ACL, "dtype:i transpose:i", 0, {0}},
    {"OneHot", OP_ONNX, "axis:i", 2, {0}},
    {"Or", OP_ONNX, "broadcast:i", 0, {3}},
    {"PRelu", OP_ONNX, "", 0, {3}},
    {"Pack", OP_ACL, "axis:i N:i", 0, {0}},
    {"Pad", OP_ONNX, "mode:s pads:I value:f", 0, {5}},
    {"PadD", OP_ACL, "paddings:I", 0, {0}},
    {"Permute", OP_ACL, "order:I", 0, {0}},
    {"Pow", OP_ONNX, "broadcast:i", 0, {0}},
    {"QLinearConv", OP_ONNX,
        "auto_pad:s dilations:I group:i kernel_shape:I pads:I strides:I", 0, {5, 40}},
    {"QLinearMatMul", OP_ONNX, "", 0, {5, 82, 40}},
    {"QuantizeLinear", OP_ONNX,
        "axis:i block_size:i output_dtype:i precision:i saturate:i", 0, {0}},
    {"QuickGelu", OP_ORT, "alpha:f", 0, {0}},
    {"RMSNormalization", OP_ONNX, "axis:i epsilon:f stash_type:i", 0, {0}},
    {"RNN", OP_ONNX,
        "activation_alpha:F activation_beta:F activations:S clip:f direction:s hidden_size:i "
        "layout:i output_sequence:i", 0, {47}},
    {"Range", OP_ONNX, "stash_type:i", 7, {7}},
    {"Range", OP_ACL, "is_closed:i=0", 7, {0}},
    {"ReduceAll", OP_ACL, "axes:I keep_dims:i", 0, {0}},
    {"ReduceAny", OP_ACL, "axes:I keep_dims:i", 0, {0}},
    {"ReduceL1", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceL2", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceLogSum", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceLogSumExp", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceMax", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceMax", OP_ACL, "axes:I keep_dims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceMaxD", OP_ACL, "axes:I keep_dims:i", 0, {0}},
    {"ReduceMean", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceMean", OP_ACL, "axes:I keep_dims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceMeanD", OP_ACL, "axes:I keep_dims:i", 0, {0}},
    {"ReduceMin", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceMin", OP_ACL, "axes:I keep_dims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceMinD", OP_ACL, "axes:I keep_dims:i", 0, {0}},
    {"ReduceProd", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceProd", OP_ACL, "axes:I keep_dims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceSum", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceSum", OP_ACL, "axes:I keep_dims:i noop_with_empty_axes:i", 0, {0}},
    {"ReduceSumD", OP_ACL, "axes:I keep_dims:i", 0, {0}},
    {"ReduceSumSquare", OP_ONNX, "axes:I keepdims:i noop_with_empty_axes:i", 0, {0}},
    {"Reshape", OP_ONNX, "allowzero:i shape:I", 0, {0}},
    {"Reshape", OP_ACL, "shape:I allowzero:i axis:i=0 num_axes:i=-1", 0, {0}},
    {"Resize", OP_ONNX,
        "antialias:i axes:I coordinate_transformation_mode:s cubic_coeff_a:f "
        "exclude_outside:i extrapolation_value:f keep_aspect_ratio_policy:s mode:s "
        "nearest_mode:s", 0, {0}},
    {"ReverseSequence", OP_ONNX, "batch_axis:i time_axis:i", 0, {0}},
    {"RoiAlign", OP_ONNX,
        "coordinate_transformation_mode:s mode:s output_height:i output_width:i "
        "sampling_ratio:i spatial_scale:f", 0, {3}},
    {"RotaryEmbedding", OP_ONNX, "interleaved:i num_heads:i rotary_embedding_dim:i", 0, {0}},
    {"RotaryEmbedding", OP_ORT,
        "interleaved:i is_packed_batching:i num_heads:i rotary_embedding_dim:i scale:f=1", 0, {0}},
    {"Round", OP_ACL, "decimals:i=0", 0, {0}},
    {"STFT", OP_ONNX, "onesided:i", 10, {5, 10}},
    {"Scatter", OP_ONNX, "axis:i", 0, {5}},
    {"ScatterElements", OP_ONNX, "axis:i reduction:s", 0, {5}},
    {"ScatterND", OP_ONNX, "reduction:s", 0, {5}},
    {"Selu", OP_ONNX, "alpha:f gamma:f", 0, {0}},
    {"Shape", OP_ONNX, "end:i start:i", 0, {0}},
    {"Shrink", OP_ONNX, "bias:f lambd:f", 0, {0}},
    {"SimplifiedLayerNormalization", OP_ONNX, "axis:i epsilon:f stash_type:i", 0, {0}},
    {"SimplifiedLayerNormalization", OP_ORT, "axis:i epsilon:f stash_type:i", 0, {0}},
    {"SkipLayerNormalization", OP_ORT, "epsilon:f", 0, {0}},
    {"SkipSimplifiedLayerNormalization", OP_ORT, "epsilon:f", 0, {0}},
    {"Slice", OP_ONNX, "axes:I ends:I starts:I", 0, {30}},
    {"SliceD", OP_ACL, "offsets:I size:I", 0, {0}},
    {"Softmax", OP_ONNX, "axis:i", 0, {0}},
    {"Softmax", OP_ACL, "axes:I axis:i", 0, {0}},
    {"SoftmaxCrossEntropyLoss", OP_ONNX, "ignore_index:i reduction:s", 0, {0}},
    {"SoftmaxV2", OP_ACL, "axes:I axis:i half_to_float:i=0", 0, {0}},
    {"SpaceToDepth", OP_ONNX, "blocksize:i mode:s", 0, {0}},
    {"Split", OP_ONNX, "axis:i num_outputs:i split:I", 0, {0}},
    {"Squeeze", OP_ONNX, "axes:I", 0, {0}},
    {"Squeeze", OP_ACL, "axis:I", 0, {0}},
    {"StridedSlice", OP_ACL,
        "begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i shrink_axis_mask:i", 0, {0}},
    {"StridedSliceD", OP_ACL,
        "begin:I end:I strides:I begin_mask:i end_mask:i ellipsis_mask:i new_axis_mask:i "
        "shrink_axis_mask:i", 0, {0}},
    {"Sub", OP_ONNX, "broadcast:i", 0, {3}},
    {"Swish", OP_ONNX, "alpha:f", 0, {0}},
    {"Swish", OP_ACL, "scale:f", 0, {0}},
    {"TensorScatter", OP_ONNX, "axis:i mode:s", 0, {3}},
    {"ThresholdedRelu", OP_ONNX, "alpha:f", 0, {0}},
    {"TileD", OP_ACL, "multiples:I", 0, {0}},
    {"TopK", OP_ONNX, "axis:i k:i largest:i sorted:i", 2, {0}},
    {"TopKD", OP_ACL, "dim:i k:i largest:i sorted:i", 0, {0}},
    {"TopKV2", OP_ACL, "dim:i indices_dtype:i=3 largest:i sorted:i", 2, {0}},
    {"Transpose", OP_ONNX, "perm:I", 0, {0}},
    {"TransposeD", OP_ACL, "perm:I", 0, {0}},
    {"Tril", OP_ACL, "diagonal:i", 0, {0}},
    {"Trilu", OP_ONNX, "upper:i", 2, {0}},
    {"Triu", OP_ACL, "diagonal:i", 0, {0}},
    {"Unpack", OP_ACL, "axis:i num:i", 0, {0}},
    {"Unsqueeze", OP_ONNX, "axes:I", 0, {0}},
    {"Unsqueeze", OP_ACL, "axes:I", 0, {0}},
    {"Upsample", OP_ONNX, "mode:s scales:F", 0, {0}},
    {"Where", OP_ONNX, "", 0, {6}},
    {"Xor", OP_ONNX, "broadcast:i", 0, {3}},
};

static int form_compare(const void *key, const void *item)
{
    const OpKind *kind = key;
    const Form *form = item;
    int order = strcmp(kind->name, form->name);
    if (order != 0 || (kind->domain & form->domain) != 0) {
        return order;
    }
    return kind->domain < form->domain ? -1 : 1;
}

/* Finds the row of the call's operator. For an operator of both domains: ONNX's row in a model, ACL's row in the
   call of a single operator. */
static const Form *form_find(const OpCall *call)
{
    OpKind key = *call->kind;
    key.domain = key.domain == OP_BOTH ? (call->opset > 0 ? OP_ONNX : OP_ACL)
        : (key.domain & OP_ONNX) != 0  ? OP_ONNX
                                       : key.domain;
    return bsearch(&key, forms, sizeof forms / sizeof forms[0], sizeof forms[0], form_compare);
}

/* Returns the position in the list of the attribute's kind; NULL if the attribute is not listed. */
static const char *kind_find(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, name, length) == 0 && at[length] == ':') {
            return at + length + 1;
        }
    }
    return NULL;
}

static bool kind_fits(const Attr *attr, char kind)
{
    switch (kind) {
    case 'i': return attr->kind == ATTR_INT;
    case 'f': return attr->kind == ATTR_FLOAT || attr->kind == ATTR_INT;
    case 's': return attr->kind == ATTR_STRING;
    case 't': return attr->kind == ATTR_TENSOR;
    case 'I': return attr->kind == ATTR_INTS || attr->kind == ATTR_INT
        || (attr->kind == ATTR_NONE && attr->count == 0);
    case 'F': return attr->kind == ATTR_FLOATS || (attr->kind == ATTR_INTS && attr->count == 0);
    default: return attr->kind == ATTR_STRINGS || (attr->kind == ATTR_INTS && attr->count == 0);
    }
}

static bool attribute_check(const OpCall *call, const char *list, const Attr *attr)
{
    const char *kind = kind_find(list, attr->name);
    if (kind == NULL) {
        return attr->name[0] == '_'
            || op_fail(call, "attribute %s: %s has no such attribute%s%s", attr->name,
                call->kind->name, list[0] == '\0' ? ", and no other" : "; it has ", list);
    }
    if (!kind_fits(attr, kind[0])) {
        return op_fail(call, "attribute %s: expected %s", attr->name,
            kind[0] == 'i'       ? "an integer"
                : kind[0] == 'f' ? "a number"
                : kind[0] == 's' ? "a string"
                : kind[0] == 't' ? "a tensor"
                : kind[0] == 'I' ? "a list of integers"
                : kind[0] == 'F' ? "a list of numbers"
                                 : "a list of strings");
    }
    double only = kind[1] == '=' ? strtod(kind + 2, NULL) : 0.0;
    double given = attr->kind == ATTR_INT ? (double)attr->i : attr->f;
    return kind[1] != '=' || (given >= only && given <= only)
        || op_fail(call, "attribute %s: only %g is supported, got %g", attr->name, only, given);
}

bool form_accept(const OpCall *call)
{
    const Form *form = form_find(call);
    for (int i = 0; call->attrs != NULL && i < call->attrs->count; i++) {
        if (!attribute_check(
                call, form == NULL ? "" : form->attributes, &call->attrs->items[i])) {
            return false;
        }
    }
    return true;
}

static bool types_check(const OpCall *call, unsigned same)
{
    int first = -1;
    for (int i = 0; i < call->input_count && i < 32; i++) {
        const Tensor *input = (same >> i & 1U) != 0 ? call->inputs[i] : NULL;
        first = first < 0 && input != NULL ? i : first;
        if (input != NULL && input->type != call->inputs[first]->type) {
            return op_fail(call, "input %d: expected %s like input %d, got %s", i,
                type_name(call->inputs[first]->type), first, type_name(input->type));
        }
    }
    return true;
}

static bool scalars_check(const OpCall *call, unsigned scalars)
{
    for (int i = 0; i < call->input_count && i < 32; i++) {
        const Tensor *input = (scalars >> i & 1U) != 0 ? call->inputs[i] : NULL;
        if (input != NULL && tensor_count(input) != 1) {
            char text[128];
            return op_fail(call, "input %d: expected one value, got shape %s", i,
                shape_text(input, text, sizeof text));
        }
    }
    return true;
}

bool form_check_inputs(const OpCall *call)
{
    const Form *form = form_find(call);
    for (int i = 0; call->kind->inputs_max == OP_INPUTS_ALL && i < call->input_count; i++) {
        if (call->inputs[i] == NULL) {
            return op_fail(call, "input %d was left out; %s has no optional inputs", i,
                call->kind->name);
        }
    }
    return form == NULL
        || (scalars_check(call, form->scalars) && types_check(call, form->same[0])
            && types_check(call, form->same[1]) && types_check(call, form->same[2]));
}
