"""Runs operators of PyTorch on the NPU and on the CPU: `python -m support.torch_operators` prints JSON.

`right` lists the operators whose results are equal, `wrong` those whose results differ, `failed` those that raise,
with the reason.  Run it with ASCEND_LAUNCH_BLOCKING=1, so that an error is reported for its own operator.
"""

from __future__ import annotations

import json
import re
import warnings

#: An expression for each operator, by its name in torch.  x and y are matrices, s is a square matrix, b is a batch of
#: square matrices, u has values between -1 and 1, i has indices, m is a mask; image and w are for convolutions.
EXPRESSIONS = {
    "abs": "x.abs()", "acos": "u.acos()", "add": "x + y", "addcdiv": "torch.addcdiv(x, y, y.abs() + 1)",
    "addcmul": "torch.addcmul(x, x, y)", "addmm": "torch.addmm(s, x, y.T)", "all": "m.all()",
    "allclose": "torch.allclose(x, x)", "any": "m.any()", "arange": "torch.arange(5, device=x.device)",
    "argmax": "x.argmax(1)", "argmin": "x.argmin(1)", "asin": "u.asin()", "atan": "x.atan()",
    "avg_pool2d": "F.avg_pool2d(image, 2)", "baddbmm": "torch.baddbmm(b, b, b)",
    "batch_norm": "F.batch_norm(image, image[0, :, 0, 0], image[0, :, 0, 0].abs())",
    "bernoulli": "torch.bernoulli(m.float())", "bincount": "i[0].bincount()", "bitwise_and": "i & 1",
    "bitwise_or": "i | 1", "bitwise_xor": "i ^ 1", "bmm": "torch.bmm(b, b)", "cat": "torch.cat([x, y])",
    "ceil": "x.ceil()", "clamp": "x.clamp(-0.5, 0.5)", "clone": "x.clone()", "contiguous": "x.T.contiguous()",
    "conv2d": "F.conv2d(image, w)", "copy_": "x.clone().copy_(y)", "cos": "x.cos()", "cosh": "x.cosh()",
    "cross_entropy": "F.cross_entropy(x, i[:, 0])", "cumsum": "x.cumsum(1)", "div": "x / (y.abs() + 1)",
    "dropout": "F.dropout(x, 0.0)", "einsum": "torch.einsum('ij,kj->ik', x, y)", "elu": "F.elu(x)",
    "embedding": "F.embedding(i, x)", "eq": "i == 1", "equal": "torch.equal(x, x)", "erf": "x.erf()", "exp": "x.exp()",
    "expand": "x[:1].expand(4, 8).contiguous()", "expm1": "x.expm1()", "eye": "torch.eye(3, device=x.device)",
    "fill_": "x.clone().fill_(2.0)", "flip": "x.flip(0)", "floor": "x.floor()", "floor_divide": "i // 2",
    "full": "torch.full((2, 3), 1.5, device=x.device)", "gather": "x.gather(0, i)", "ge": "x >= y",
    "gelu": "F.gelu(x, approximate='tanh')", "group_norm": "F.group_norm(image, 3)", "gt": "x > y",
    "hardsigmoid": "F.hardsigmoid(x)", "hardswish": "F.hardswish(x)", "index": "x[i[0]]",
    "index_put_": "x.clone().index_put_((i[0, :1],), y[0])", "index_select": "x.index_select(0, i[0])",
    "interpolate": "F.interpolate(image, scale_factor=2)", "isfinite": "x.isfinite()", "isnan": "x.isnan()",
    "item": "torch.tensor(x[0, 0].item())", "l1_loss": "F.l1_loss(x, y)", "layer_norm": "F.layer_norm(x, (8,))",
    "le": "x <= y", "lerp": "torch.lerp(x, y, 0.5)", "linear": "F.linear(x, y)",
    "linspace": "torch.linspace(0, 1, 5, device=x.device)", "log": "x.abs().log()", "log1p": "x.abs().log1p()",
    "log_softmax": "x.log_softmax(-1)", "logical_and": "m & m", "logical_not": "~m", "logical_or": "m | m",
    "lt": "x < y", "masked_fill": "x.masked_fill(m, 0.0)", "masked_select": "x.masked_select(m)", "matmul": "x @ y.T",
    "max": "x.max()", "max_dim": "x.max(1)[0]", "max_pool2d": "F.max_pool2d(image, 2)",
    "maximum": "torch.maximum(x, y)", "mean": "x.mean(0)", "min": "x.min()", "minimum": "torch.minimum(x, y)",
    "mish": "F.mish(x)", "mse_loss": "F.mse_loss(x, y)", "mul": "x * y", "ne": "i != 1", "neg": "-x",
    "nonzero": "m.nonzero()", "norm": "x.norm()", "one_hot": "F.one_hot(i, 4)",
    "ones": "torch.ones(3, device=x.device)", "ones_like": "torch.ones_like(x)", "pad": "F.pad(x, (1, 1))",
    "permute": "image.permute(0, 2, 3, 1).contiguous()", "pow": "x ** 2", "prod": "x.prod()",
    "reciprocal": "(x.abs() + 1).reciprocal()", "relu": "F.relu(x)", "remainder": "i % 3", "repeat": "x.repeat(2, 1)",
    "reshape": "x.reshape(8, 4)", "rms_norm": "F.rms_norm(x, (8,))", "roll": "x.roll(1)", "round": "x.round()",
    "rsqrt": "(x.abs() + 1).rsqrt()",
    "scaled_dot_product_attention": "F.scaled_dot_product_attention(b[None], b[None], b[None])",
    "scatter": "x.clone().scatter_(0, i, 1.0)", "select": "x[1]", "selu": "F.selu(x)", "sigmoid": "x.sigmoid()",
    "sign": "x.sign()", "silu": "F.silu(x)", "sin": "x.sin()", "sinh": "x.sinh()", "slice": "x[1:3, ::2].contiguous()",
    "softmax": "x.softmax(-1)", "softplus": "F.softplus(x)", "sort": "x.sort(1)[0]", "split": "x.split(2)[1] + 0",
    "sqrt": "x.abs().sqrt()", "stack": "torch.stack([x, y])", "std": "x.std()", "sub": "x - y", "sum": "x.sum()",
    "sum_dim": "x.sum(1)", "tan": "u.tan()", "tanh": "x.tanh()", "to": "x.half() + 1", "topk": "x.topk(3)[0]",
    "transpose": "x.T.contiguous()", "tril": "x.tril()", "triu": "x.triu()", "unique": "i.unique()", "var": "x.var(0)",
    "where": "torch.where(m, x, y)", "zeros": "torch.zeros(3, device=x.device)", "zeros_like": "torch.zeros_like(x)",
}


def run() -> dict[str, object]:
    """Evaluate each expression on the NPU and on the CPU; return the operators by outcome."""
    import torch
    import torch.nn.functional as F
    import torch_npu  # noqa: F401

    made = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 8, generator=made), torch.randn(4, 8, generator=made)
    i = torch.randint(0, 4, (4, 8), generator=made)
    values = {"x": x, "y": y, "i": i, "m": x > 0, "u": x.clamp(-0.9, 0.9), "s": x[:, :4].contiguous(),
              "b": torch.randn(3, 4, 4, generator=made), "image": torch.randn(2, 3, 8, 8, generator=made),
              "w": torch.randn(5, 3, 3, 3, generator=made)}
    right, wrong, failed = [], [], {}
    for name, expression in EXPRESSIONS.items():
        wanted = eval(expression, {"torch": torch, "F": F, **{key: value.clone() for key, value in values.items()}})
        try:
            got = eval(expression, {"torch": torch, "F": F, **{key: value.npu() for key, value in values.items()}})
            torch.npu.synchronize()
            got, wanted = (one.cpu() if isinstance(one, torch.Tensor) else torch.tensor(one) for one in (got, wanted))
        except Exception as error:
            operator = re.search(r"no operator (\w+)", str(error))
            failed[name] = operator[1] if operator else str(error).strip().splitlines()[-1][:100]
            continue
        equal = got.shape == wanted.shape and got.dtype == wanted.dtype
        equal = equal and torch.allclose(got.double(), wanted.double(), 1e-3, 1e-3, equal_nan=True)
        (right if equal else wrong).append(name)
    return {"right": right, "wrong": wrong, "failed": failed}


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    print(json.dumps(run()))
