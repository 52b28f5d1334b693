#!/usr/bin/env python3
"""Recurrences: Strata's kernels and the torch code of transformers, interleaved, at 2,048 tokens and 8 heads.

    build/peers/venv/bin/python bench/peers/recurrence_compare.py [--rule delta kimi mamba2] [--size 64 128]
                                [--dtype fp32 bf16] [--rounds 3] [--threads N] [--build build/release]

Needs `bench/peers/setup.sh experts` and the program recurrence_bench (`cmake --build build/release --target benches`). A
round times forward and backward of both on the same threads, first ours, then theirs (the median of three). The ratio is
theirs to ours; the median over the rounds is printed. Chunks are transformers' defaults, for Mamba-2 the faster of 64
and 256.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

import torch
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

ROWS, HEADS = 2048, 8
RULES = {"delta": 0, "kimi": 1, "mamba2": 2}  # as recurrence_bench counts them
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def ours(build, rule, size, dtype, threads):
    """Seconds of forward and of backward."""
    case = f"{RULES[rule]}/{ROWS}/{HEADS}/{size}/{int(dtype == 'bf16')}"
    out = subprocess.run([build / "bin/recurrence_bench", f"--benchmark_filter=^(forward|backward)/{case}/",
                          "--benchmark_format=json"], check=True, capture_output=True, text=True,
                         env=os.environ | {"OMP_NUM_THREADS": str(threads)})
    found = {each["name"].split("/")[0]: each["real_time"] / 1e3 for each in json.loads(out.stdout)["benchmarks"]}
    return found["forward"] + found["backward"]


def operands(rule, size, dtype):
    torch.manual_seed(1)
    def normal(*shape):
        return torch.randn(1, ROWS, *shape).to(DTYPES[dtype]).requires_grad_()
    groups = 1 if rule == "mamba2" else HEADS
    decay = (HEADS, size) if rule == "kimi" else (HEADS,)
    g = (-0.001 * (torch.arange(ROWS * decay[0] * (decay[1:] or (1,))[0]) * 7919 % 100)).reshape(1, ROWS, *decay)
    return (normal(groups, size), normal(groups, size), normal(HEADS, size), g.float().requires_grad_(),
            torch.full((1, ROWS, HEADS), 0.5, requires_grad=True))


def theirs(rule, size, dtype):
    q, k, v, g, beta = operands(rule, size, dtype)
    forms = {
        "delta": [lambda: torch_chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)],
        "kimi": [lambda: chunk_kimi_delta_attention(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)],
        "mamba2": [lambda chunk=chunk: mamba2_chunk_scan(v, beta, torch.full((HEADS,), -0.1), k, q, chunk)
                   for chunk in (64, 256)],
    }[rule]
    best = []
    for form in forms:
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            out = form()
            out = out[0] if isinstance(out, tuple) else out
            out.backward(torch.ones_like(out))
            times.append(time.perf_counter() - begin)
        best.append(statistics.median(times[1:]))  # the first run allocates
    return min(best)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rule", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--size", nargs="+", type=int, choices=[64, 128], default=[64, 128])
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for rule in args.rule:
        for size in args.size:
            for dtype in args.dtype:
                rounds = [(ours(args.build, rule, size, dtype, args.threads), theirs(rule, size, dtype))
                          for _ in range(args.rounds)]
                us, them = (statistics.median(each) for each in zip(*rounds))
                ratio = statistics.median(b / a for a, b in rounds)
                print(f"{rule}, {HEADS} heads of {size}, {dtype}: {us * 1e3:.1f} ms, transformers {them * 1e3:.1f} ms, "
                      f"{ratio:.1f} x", flush=True)


if __name__ == "__main__":
    main()
