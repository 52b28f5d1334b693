"""Writes tests/data/optim/curves.json and quantization.json: results of PyTorch, bitsandbytes and the authors' reference
code on the problem below. Needs torch >= 2.9 (torch.optim.Muon), bitsandbytes >= 0.50 and torch-adopt, the package of
ADOPT's authors (written with 2.15.0, 0.50.2 and 0.1.0).

    python tools/golden/make_optim_golden.py tests/data/optim

The problem, also defined in tests/optim/curve_test.cpp: element i of a tensor of stream s starts at number(s, i) and has
the target number(s + 1, i) with weight 1.25 + number(s + 2, i). Its gradient in step t is

    weight * (p - target) * (1 + 0.5 * number(1000 * t + s, i)), each product rounded to fp32.
"""
import json
import sys
from pathlib import Path

import bitsandbytes.functional as functional
import numpy
import torch
from adopt import ADOPT
from bitsandbytes.backends.triton import kernels_optim

ADOPT._cuda_graph_capture_health_check = lambda self: None  # its package calls a method that later versions of torch renamed
STEPS = 40
DECAY = 0.1
TENSORS = {"wide": (24, 40), "tall": (48, 20), "square": (16, 16), "large": (48, 96), "vector": (56,)}


def numbers(stream, count):
    """A number in (-1, 1) from a counter, exact in fp32."""
    with numpy.errstate(over="ignore"):
        x = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(stream * 1000003 + 1)) * numpy.uint64(0x9E3779B97F4A7C15)
        x ^= x >> numpy.uint64(29)
        x *= numpy.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> numpy.uint64(32)
    return ((x >> numpy.uint64(40)).astype(numpy.float64) / 8388608.0 - 1.0).astype(numpy.float32)


class Problem:
    def __init__(self, name):
        shape = TENSORS[name]
        self.stream = 10 * (1 + list(TENSORS).index(name))
        self.count = int(numpy.prod(shape))
        tensor = lambda offset: torch.from_numpy(numbers(self.stream + offset, self.count)).reshape(shape)
        self.p = torch.nn.Parameter(tensor(0))
        self.target = tensor(1)
        self.weight = 1.25 + tensor(2)

    def gradient(self, step):
        factor = 1 + 0.5 * torch.from_numpy(numbers(1000 * step + self.stream, self.count)).reshape(self.p.shape)
        return self.weight * (self.p.detach() - self.target) * factor

    def loss(self):
        return float((0.5 * self.weight.double() * (self.p.detach().double() - self.target.double()) ** 2).sum())


def curve(name, make, lr):
    """The loss before every step and after the last, and the first elements of the parameter at the end."""
    problem = Problem(name)
    step_of = make(problem.p, lr)
    losses = [problem.loss()]
    for step in range(1, STEPS + 1):
        problem.p.grad = problem.gradient(step)
        step_of(step)
        losses.append(problem.loss())
    return {"tensor": name, "lr": lr, "loss": losses, "end": problem.p.detach().flatten()[:64].tolist()}


def torch_optimizer(kind, **options):
    def make(p, lr):
        optimizer = kind([p], lr=lr, **options)
        return lambda step: optimizer.step()

    return make


def lion(p, lr):
    """Chen et al. 2023, algorithm 2 (google/automl, lion_pytorch.py)."""
    m, beta1, beta2 = torch.zeros_like(p), 0.9, 0.99

    @torch.no_grad()
    def step(_):
        p.mul_(1 - lr * DECAY)
        update = m.clone().mul_(beta1).add(p.grad, alpha=1 - beta1).sign_()
        p.add_(update, alpha=-lr)
        m.mul_(beta2).add_(p.grad, alpha=1 - beta2)

    return step


def muon(scale, nesterov=True):
    """Jordan et al. 2024 (KellerJordan/Muon), with matmuls in fp32 instead of bf16; `scale`: of the update."""

    def newton_schulz(g):
        x = g.T if g.size(0) > g.size(1) else g
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x.T if g.size(0) > g.size(1) else x

    def make(p, lr):
        momentum = torch.zeros_like(p)

        @torch.no_grad()
        def step(_):
            momentum.lerp_(p.grad, 1 - 0.95)
            update = newton_schulz(p.grad.lerp(momentum, 0.95) if nesterov else momentum)
            p.mul_(1 - lr * DECAY)
            p.add_(update, alpha=-lr * scale(*p.shape))

        return step

    return make


ORIGINAL = lambda rows, columns: max(1, rows / columns) ** 0.5
MATCH_RMS = lambda rows, columns: 0.2 * max(rows, columns) ** 0.5
states8 = {}


def adamw8bit(p, lr):
    """The step of bitsandbytes in plain PyTorch, with the rounding of its backend "default"."""
    kernels_optim._quantize_blockwise_pytorch = default_quantize
    n, blocks = p.numel(), (p.numel() + 255) // 256
    maps = functional.create_dynamic_map(signed=True), functional.create_dynamic_map(signed=False)
    m, v = torch.zeros(n, dtype=torch.uint8), torch.zeros(n, dtype=torch.uint8)
    m_scale, v_scale = torch.zeros(blocks), torch.zeros(blocks)
    states8.update(m=m, v=v, m_scale=m_scale, v_scale=v_scale)

    def step(number):
        flat = p.data.view(-1)
        kernels_optim.optimizer_update_8bit_blockwise_pytorch(
            flat, p.grad.reshape(-1), m, v, 0.9, 0.95, 0.0, 0.0, 1e-8, number, lr, *maps, m_scale, v_scale, DECAY, 1.0,
            False, optimizer_name="adam")

    return step


def main(folder):
    torch.set_num_threads(1)
    curves = {
        "adamw": [curve(name, torch_optimizer(torch.optim.AdamW, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY), 0.02)
                  for name in ("wide", "vector")],
        "lion": [curve(name, lion, 0.01) for name in ("wide", "vector")],
        "adafactor": [curve(name, torch_optimizer(torch.optim.Adafactor, weight_decay=DECAY), 0.05)
                      for name in ("wide", "tall", "vector")],
        "muon_original": [curve(name, muon(ORIGINAL), 0.02) for name in ("wide", "tall", "square")],
        "muon_match_rms": [curve(name, muon(MATCH_RMS), 0.02) for name in ("wide", "tall")],
        "muon_without_nesterov": [curve("wide", muon(ORIGINAL, nesterov=False), 0.02)],
        # bf16 matmuls as in PyTorch: the test's tolerance covers their error.
        "muon_torch": [curve("wide", torch_optimizer(torch.optim.Muon, weight_decay=DECAY), 0.02)],
        "adamw8bit": [curve("large", adamw8bit, 0.02)],
        "adopt": [curve(name, torch_optimizer(ADOPT, weight_decay=DECAY, decouple=True, foreach=False), 0.02)
                  for name in ("wide", "vector")],
    }
    hexadecimal = lambda tensor: bytes(tensor.numpy().tobytes()).hex()
    curves["adamw8bit"][0].update(
        m=hexadecimal(states8["m"]), v=hexadecimal(states8["v"]), m_scale=states8["m_scale"].tolist(),
        v_scale=states8["v_scale"].tolist())
    (folder / "curves.json").write_text(json.dumps(curves, indent=0) + "\n")

    quantization = {}
    for name, signed in (("signed", True), ("unsigned", False)):
        codes = functional.create_dynamic_map(signed=signed)
        x = numbers(7, 4096)
        x = numpy.ldexp(x, -3 * (numpy.arange(4096) % 9)).astype(numpy.float32)
        x[1024:1280] = 0
        x = torch.from_numpy(x if signed else numpy.abs(x))
        q, scales = default_quantize(x, codes)
        quantization[name] = {"map": codes.tolist(), "codes": hexadecimal(q), "scales": scales.tolist()}
    (folder / "quantization.json").write_text(json.dumps(quantization, indent=0) + "\n")


def default_quantize(x, codes):
    """bitsandbytes::quantize_blockwise of the backend "default"; its CPU library rounds by a coarser table."""
    return torch.ops.bitsandbytes.quantize_blockwise.default.redispatch(
        torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd), x, codes, 256)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
