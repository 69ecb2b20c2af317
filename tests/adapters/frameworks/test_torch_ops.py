"""torch_npu's eager operators on the simulator's single operators, against torch on the CPU.

An optional lane, like test_torch_npu.py: skipped if torch_npu is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = [
    pytest.mark.torch_npu,
    pytest.mark.subprocess_heavy,
    pytest.mark.skipif(importlib.util.find_spec("torch_npu") is None, reason="torch_npu is not installed"),
]

START = """
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_npu
torch.npu.set_device(0)
torch.manual_seed(0)
torch.set_grad_enabled(False)

def same(f, *args, tol=1e-4):
    cpu = f(*args)
    npu = f(*[a.to("npu") if isinstance(a, torch.Tensor) else a for a in args])
    cpu, npu = (r[0] if isinstance(r, (tuple, list)) else r for r in (cpu, npu))
    npu = npu.cpu()
    assert cpu.dtype == npu.dtype and cpu.shape == npu.shape, (cpu.dtype, npu.dtype, cpu.shape, npu.shape)
    assert torch.allclose(cpu.float(), npu.float(), rtol=tol, atol=tol), (cpu.float() - npu.float()).abs().max()

x, y = torch.randn(4, 8), torch.randn(4, 8)
"""


def program(code: str) -> None:
    """Run code on the simulator; check that it exits with 0 and that torch_npu's queue reported no error."""
    line = [sys.executable, "-m", "acl.tools.sim", "--", sys.executable, "-c", START + textwrap.dedent(code)]
    done = subprocess.run(line, env=dict(os.environ), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "[ERROR]" not in done.stderr


def test_elementwise_operators_and_reductions_equal_the_cpus() -> None:
    program("""
    for f in (torch.add, torch.sub, torch.mul, torch.div, torch.eq, torch.gt, lambda a, b: torch.add(a, b, alpha=2)):
        same(f, x, y)
    for f in (torch.exp, torch.tanh, torch.sigmoid, F.relu, F.silu, torch.neg, torch.abs, lambda a: a.clamp(-0.5, 0.5),
              lambda a: a ** 2, lambda a: a.sum(), lambda a: a.mean(-1), lambda a: a.max(1), lambda a: a.argmax(1),
              lambda a: a.cumsum(1), lambda a: a.half(), lambda a: a.to(torch.int32), torch.isfinite):
        same(f, x)
    """)


def test_shape_and_index_operators_equal_the_cpus() -> None:
    program("""
    same(lambda a, b: torch.cat([a, b], 1), x, y)
    same(lambda a, b: torch.stack([a, b]), x, y)
    same(lambda a: a[1:3, ::2].contiguous(), x)
    same(lambda a: a.t().contiguous(), x)
    same(lambda a: a[:1].expand(4, 8).contiguous(), x)
    same(lambda a: a.masked_fill(a > 0, -1.0), x)
    same(lambda a, b: torch.where(a > 0, a, b), x, y)
    same(lambda a: (a > 0).nonzero(), x)
    same(lambda a: a.topk(3), x)
    same(torch.tril, x)
    same(lambda w, i: F.embedding(i, w), torch.randn(10, 4), torch.tensor([[1, 2], [3, 9]]))
    assert "tensor" in repr(x.to("npu"))
    """)


def test_multilayer_perceptron_equals_the_cpus() -> None:
    program("""
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1))
    for _ in range(5):
        cpu, npu = net(x), copy.deepcopy(net).to("npu")(x.to("npu")).cpu()
        assert torch.allclose(cpu, npu, atol=2e-3), (cpu - npu).abs().max()
    """)


def test_strided_slices_are_written() -> None:
    """Write columns, rows, steps, diagonals and transposed views, as a cache of keys and values does."""
    program("""
    def written(shape, change, dtype=torch.float32):
        cpu = torch.arange(24).to(dtype).reshape(shape)
        npu = cpu.npu()
        change(cpu, lambda t: t)
        change(npu, lambda t: t.npu())
        assert torch.equal(cpu, npu.cpu()), (cpu, npu.cpu())

    def column(c, at): c[:, 3] = at(torch.arange(4.))
    def number(c, at): c[:, 1::2] = 7
    def part(c, at): c[1:3, 2:4].copy_(at(torch.ones(2, 2)))
    def added(c, at): c[:, 5] += at(torch.ones(4))
    def filled(c, at): c[1:, ::2].fill_(5)
    def in_turn(c, at): c[:, 3].mul_(2).add_(1)
    def diagonal(c, at): c.diagonal().fill_(1)
    for change in (column, number, part, added, filled, in_turn, diagonal):
        written((4, 6), change)
    for dtype in (torch.float16, torch.int64, torch.uint8):
        written((4, 6), number, dtype)

    def token(c, at): c[:, :, -1] = at(torch.ones(2, 3))
    def turned(c, at): c.transpose(0, 2)[1].copy_(at(torch.arange(6.).view(3, 2)))
    written((2, 3, 4), token)
    written((2, 3, 4), turned)
    """)


def test_the_gradient_of_a_slice_is_that_of_the_whole() -> None:
    program("""
    torch.set_grad_enabled(True)
    grads = []
    for device in ("cpu", "npu"):
        a = x.to(device).detach().requires_grad_()
        ((a[:, 1:3] ** 2).sum() + a[2].sum() + a[:, -1].sum()).backward()
        grads.append(a.grad.cpu())
    assert torch.allclose(*grads)
    """)


def test_attention_block_equals_the_cpus() -> None:
    program("""
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
            self.norm = nn.LayerNorm(8)

        def forward(self, x):
            batch, tokens, width = x.shape
            heads = lambda t: t.view(batch, tokens, 2, 4).transpose(1, 2)
            scores = heads(self.q(x)) @ heads(self.k(x)).transpose(-1, -2) / 2.0
            mixed = torch.softmax(scores, -1) @ heads(self.v(x))
            return self.norm(x + self.o(mixed.transpose(1, 2).reshape(batch, tokens, width)))

    block = Attention()
    moved = copy.deepcopy(block).to("npu")
    for tokens in (1, 5, 17):
        x = torch.randn(2, tokens, 8)
        cpu, npu = block(x), moved(x.to("npu")).cpu()
        assert torch.allclose(cpu, npu, atol=1e-4), (cpu - npu).abs().max()
    """)
