"""Writes tests/data/optim/low_precision.json: AdamW with weights or moments in fewer bits than fp32, on the problem of
make_optim_golden.py. torchao's single_param_adam() computes the updates, of which AdamWFp8 consists too; Kahan's
compensation follows its textbook form (Kahan 1965, as optimi has it). Written with torch 2.11.0 and torchao 0.18.0.

    python tools/golden/make_low_optim_golden.py tests/data/optim
"""
import json
import sys
from pathlib import Path

import numpy
import torch
from torchao.optim.adam import single_param_adam
from torchao.optim.subclass_fp8 import OptimStateFp8

STEPS = 30
SHAPE = (48, 96)
STREAM = 40  # "large" of make_optim_golden.py
BETAS, EPS, DECAY = (0.9, 0.95), 1e-8, 0.1


def numbers(stream):
    """A number in (-1, 1) from a counter, exact in fp32."""
    count = SHAPE[0] * SHAPE[1]
    with numpy.errstate(over="ignore"):
        x = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(stream * 1000003 + 1)) * numpy.uint64(0x9E3779B97F4A7C15)
        x ^= x >> numpy.uint64(29)
        x *= numpy.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> numpy.uint64(32)
    values = ((x >> numpy.uint64(40)).astype(numpy.float64) / 8388608.0 - 1.0).astype(numpy.float32)
    return torch.from_numpy(values).reshape(SHAPE)


TARGET, WEIGHT = numbers(STREAM + 1), 1.25 + numbers(STREAM + 2)


def gradient(p, step):
    return WEIGHT * (p.float() - TARGET) * (1 + 0.5 * numbers(1000 * step + STREAM))


def loss(p):
    return float((0.5 * WEIGHT.double() * (p.double() - TARGET.double()) ** 2).sum())


def zeros(kind):
    if kind == "fp8":
        return OptimStateFp8.zeros(SHAPE, 256, dtype=torch.float32)
    return torch.zeros(SHAPE, dtype=torch.bfloat16 if kind == "bf16" else torch.float32)


def adam(p, grad, step, m, v, lr):
    single_param_adam(p, grad, torch.tensor(float(step)), m, v, None, torch.tensor(lr), *BETAS, DECAY, EPS, True, False)


def words(tensor):
    return " ".join(f"{word & 0xffff:04x}" for word in tensor.flatten()[:512].view(torch.int16).tolist())


def run(weights, moments, lr, kahan=False):
    p = numbers(STREAM).to(torch.bfloat16 if weights == "bf16" else torch.float32)
    rest = torch.zeros(SHAPE, dtype=torch.bfloat16)
    m, v = zeros(moments), zeros(moments)
    losses = [loss(p)]
    for step in range(1, STEPS + 1):
        if kahan:
            exact = p.double() + rest.double()
            moved = exact.float()
            adam(moved, gradient(p, step), step, m, v, lr)
            change = rest.double() + (moved.double() - exact)  # what is to be added, with what was lost before
            before = p.double()
            p = (before + change).float().to(torch.bfloat16)
            rest = (change - (p.double() - before)).float().to(torch.bfloat16)
        else:
            adam(p, gradient(p, step), step, m, v, lr)
        losses.append(loss(p))
    result = {"weights": weights, "moments": moments, "kahan": kahan, "lr": lr, "loss": losses}
    if weights == "bf16":
        result["end"] = words(p)
    if moments == "bf16":
        result["m"], result["v"] = words(m), words(v)
    if moments == "fp8":
        for name, state in (("m", m), ("v", v)):
            result[name] = state.codes.view(torch.uint8).flatten()[:1024].numpy().tobytes().hex()
            result[name + "_scale"] = state.scale.tolist()
    return result


if __name__ == "__main__":
    runs = {
        "bf16_nearest": run("bf16", "fp32", 2e-3),
        "bf16_kahan": run("bf16", "fp32", 2e-3, kahan=True),
        "bf16_moments": run("fp32", "bf16", 2e-2),
        "fp8_moments": run("fp32", "fp8", 2e-2),
        "adamw_fp8_of_bf16": run("bf16", "fp8", 2e-2),
    }
    Path(sys.argv[1], "low_precision.json").write_text(json.dumps(runs, separators=(",", ":")).replace('},"', '},\n"') + "\n")
