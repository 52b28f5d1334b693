#!/usr/bin/env python3
"""Prints the errors of bf16 attention in PyTorch, forward and backward: relative to double precision in the 2-norm, the
largest of several draws. tests/kernels/cpu/attention_pairs_test.cpp uses them as limits for Strata's attention.

    python3 tools/golden/attention_errors.py

"sdpa" is torch.nn.functional.scaled_dot_product_attention, "eager" the attention of transformers
(eager_attention_forward): both on the CPU, keys and values repeated for grouped queries. Needs torch. Not part of the
tests, which need no Python.
"""
import math

import torch

DRAWS = 16
WHAT = ("out", "dq", "dk", "dv")
# Name, sequences, queries, keys, heads, key-value heads, head size, value size, causal.
CASES = [
    ("dim_64", 2, 256, 256, 4, 2, 64, 64, True),
    ("dim_128", 1, 385, 385, 2, 1, 128, 128, True),
    ("dim_20", 2, 150, 150, 4, 2, 20, 20, True),
    ("full", 2, 210, 210, 4, 2, 64, 64, False),
    ("cross", 1, 97, 210, 4, 2, 24, 24, False),
    ("narrow_values", 1, 210, 210, 3, 3, 192, 128, True),
]


def eager(q, k, v, mask, scale):
    scores = torch.matmul(q, k.transpose(2, 3)) * scale + mask
    weights = torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v)


def sdpa(q, k, v, mask, scale):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)


def results(attention, dtype, q, k, v, dout, causal):
    group = q.shape[1] // k.shape[1]
    inputs = [x.to(dtype, copy=True).requires_grad_() for x in (q, k, v)]
    repeated = [inputs[0], *(x.repeat_interleave(group, 1) for x in inputs[1:])]
    rows, keys = q.shape[2], k.shape[2]
    mask = torch.zeros(rows, keys, dtype=dtype)
    if causal:
        mask.masked_fill_(torch.ones(rows, keys, dtype=torch.bool).triu(1), -math.inf)
    out = attention(*repeated, mask, q.shape[-1] ** -0.5)
    out.backward(dout.to(dtype))
    return [x.detach().double() for x in (out, *(x.grad for x in inputs))]


def main():
    torch.manual_seed(7)
    print(f"torch {torch.__version__}")
    for name, batch, rows, keys, heads, kv_heads, dim, value_dim, causal in CASES:
        shapes = (heads, rows, dim), (kv_heads, keys, dim), (kv_heads, keys, value_dim), (heads, rows, value_dim)
        errors = {attention: [0.0] * 4 for attention in (sdpa, eager)}
        for _ in range(DRAWS):
            q, k, v, dout = (torch.randn(batch, *shape).bfloat16() for shape in shapes)
            exact = results(eager, torch.float64, q, k, v, dout, causal)
            for attention, worst in errors.items():
                found = results(attention, torch.bfloat16, q, k, v, dout, causal)
                for i, (a, b) in enumerate(zip(found, exact)):
                    worst[i] = max(worst[i], ((a - b).norm() / b.norm()).item())
        for attention, worst in errors.items():
            print(f"{name:14}{attention.__name__:6}", *(f"{what} {x:.2e}" for what, x in zip(WHAT, worst)), sep="  ")


if __name__ == "__main__":
    main()
