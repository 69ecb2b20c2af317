"""Operators of PyTorch that were tried with torch_npu on the simulator; their results were equal to PyTorch's."""

RIGHT = (
    "abs", "acos", "add", "addcdiv", "addcmul", "addmm", "all", "any", "arange", "argmax", "asin", "atan",
    "baddbmm", "bitwise_and", "bitwise_or", "bitwise_xor", "bmm", "cat", "ceil", "clamp", "clone", "contiguous",
    "copy_", "cos", "cosh", "cumsum", "div", "dropout", "einsum", "elu", "embedding", "eq", "erf", "exp", "expand",
    "expm1", "fill_", "floor", "floor_divide", "full", "ge", "gelu", "gt", "hardsigmoid", "hardswish",
    "index_select", "isfinite", "isnan", "item", "layer_norm", "le", "lerp", "linear", "log", "log1p",
    "log_softmax", "logical_and", "logical_not", "logical_or", "lt", "masked_fill", "masked_select", "matmul",
    "max", "max_dim", "maximum", "mean", "min", "minimum", "mish", "mul", "ne", "neg", "nonzero", "ones",
    "ones_like", "permute", "pow", "prod", "reciprocal", "relu", "remainder", "repeat", "reshape", "rms_norm",
    "round", "rsqrt", "select", "selu", "sigmoid", "sign", "silu", "sin", "sinh", "slice", "softmax", "split",
    "sqrt", "stack", "sub", "sum", "sum_dim", "tan", "tanh", "to", "topk", "transpose", "tril", "triu", "where",
    "zeros", "zeros_like",
)
