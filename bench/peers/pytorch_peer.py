#!/usr/bin/env python3
"""A training step in PyTorch, at the shapes of Strata's presets: the peer in `compare.sh`.

    pytorch_peer.py --model llama3-29m --mode compile|compile-max|eager --dtype bf16 [--steps 20] [--warmup 5]
                    [--layout ddp|fsdp2 --ranks 2 --threads 1] [--device cuda] [--batch N --length N]

The step is forward, backward, clipping to a global norm of 1 and fused AdamW, on random tokens; bf16 means autocast
with fp32 weights, bf16-weights also bf16 weights and optimizer state, which no other contestant has.
--mode compile-max also searches for the fastest kernels (max-autotune). Attention is PyTorch's fused one, and
the loss its cross-entropy: the code of a careful user.
With --layout the batch is split over the processes, joined by gloo: DistributedDataParallel, or fully_shard of each
block and of the rest (its defaults, which reshard after forward as ZeRO-3 does).
Prints one JSON object: tokens_per_s (median over the steps after warm-up), gflops (as in Strata: matmul
parameters with the head but without the embedding look-up, half of causal attention), first_step_s (from the start of
the process to the end of the first step) and peak_rss_mb.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
import time


def process_age():
    """Seconds since this process started, by the kernel's clock, so imports are included."""
    with open("/proc/self/stat") as file:
        started = int(file.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

SHAPES = {
    "llama3-5m": dict(kind="llama", d=256, layers=4, heads=4, kv_heads=2, ffn=768, vocab=4096, batch=8, length=512),
    "llama3-29m": dict(kind="llama", d=512, layers=8, heads=8, kv_heads=4, ffn=1536, vocab=8192, batch=8, length=512),
    "gpt2-124m": dict(kind="gpt2", d=768, layers=12, heads=12, kv_heads=12, ffn=3072, vocab=50257, batch=4, length=512),
}


class LlamaBlock(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = s.heads, s.kv_heads, s.d // s.heads
        self.norm1, self.norm2 = nn.RMSNorm(s.d, eps=1e-5), nn.RMSNorm(s.d, eps=1e-5)
        self.qkv = nn.Linear(s.d, (s.heads + 2 * s.kv_heads) * self.head_dim, bias=False)
        self.out = nn.Linear(s.d, s.d, bias=False)
        self.gate_up = nn.Linear(s.d, 2 * s.ffn, bias=False)
        self.down = nn.Linear(s.ffn, s.d, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, -1, self.head_dim).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        rotate = lambda z: z * cos + torch.cat((-z[..., self.head_dim // 2:], z[..., :self.head_dim // 2]), -1) * sin
        y = F.scaled_dot_product_attention(rotate(q).to(v.dtype), rotate(k).to(v.dtype), v, is_causal=True,
                                           enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Gpt2Block(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.heads, self.head_dim = s.heads, s.d // s.heads
        self.norm1, self.norm2 = nn.LayerNorm(s.d), nn.LayerNorm(s.d)
        self.qkv, self.out = nn.Linear(s.d, 3 * s.d), nn.Linear(s.d, s.d)
        self.up, self.down = nn.Linear(s.d, s.ffn), nn.Linear(s.ffn, s.d)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s.vocab, s.d)
        self.positions = nn.Embedding(s.length, s.d) if s.kind == "gpt2" else None
        block = Gpt2Block if s.kind == "gpt2" else LlamaBlock
        self.blocks = nn.ModuleList(block(s) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.d) if s.kind == "gpt2" else nn.RMSNorm(s.d, eps=1e-5)
        half = torch.arange(0, s.d // s.heads, 2) / (s.d // s.heads)
        angles = torch.outer(torch.arange(s.length), 10000.0 ** -half).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def step_flops(model, s):
    matmul = s.vocab * s.d + sum(p.numel() for b in model.blocks for p in b.parameters() if p.dim() >= 2)
    return 6 * (matmul + s.layers * s.length * s.d) * s.batch * s.length


def joined(model, layout, rank, ranks, meeting):
    """The model, distributed over processes that rendezvous through a file."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    if layout == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(rank, args, meeting):
    s = argparse.Namespace(**SHAPES[args.model])
    s.batch, s.length = args.batch or s.batch, args.length or s.length
    s.batch //= args.ranks
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    model = Model(s).to(args.device)
    if args.dtype == "bf16-weights":
        model.bfloat16()
    flops = step_flops(model, s) * args.ranks
    if args.layout:
        model = joined(model, args.layout, rank, args.ranks, meeting)
        torch.manual_seed(rank)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    compiled = {"compile": "default", "compile-max": "max-autotune"}
    forward = torch.compile(model, mode=compiled[args.mode]) if args.mode in compiled else model

    def step():
        tokens = torch.randint(0, s.vocab, (s.batch, s.length + 1), device=args.device)
        begin = time.perf_counter()
        with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if args.layout:
            torch.distributed.barrier()
        return time.perf_counter() - begin

    step()
    first = process_age()
    for _ in range(args.warmup - 1):
        step()
    median = statistics.median(step() for _ in range(args.steps))
    if rank == 0:
        tokens = args.ranks * s.batch * s.length
        print(json.dumps({
            "program": "pytorch", "version": torch.__version__, "model": args.model, "mode": args.mode,
            "dtype": args.dtype, "batch": args.ranks * s.batch, "length": s.length, "layout": args.layout,
            "ranks": args.ranks, "threads": args.threads, "first_step_s": round(first, 3), "steps": args.steps,
            "step_s": round(median, 4), "tokens_per_s": round(tokens / median, 1),
            "gflops": round(flops / median / 1e9, 1),
            "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}), flush=True)
    if args.layout:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=SHAPES, default="llama3-29m")
    parser.add_argument("--mode", choices=["eager", "compile", "compile-max"], default="eager")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "bf16-weights"], default="fp32")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--layout", choices=["ddp", "fsdp2"])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int)
    args = parser.parse_args()
    if (args.ranks > 1) != bool(args.layout):
        parser.error("--ranks and --layout go together")
    if args.layout is None:
        train(0, args, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, (args, os.path.join(folder, "meeting")), nprocs=args.ranks)


if __name__ == "__main__":
    main()
