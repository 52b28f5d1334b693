#!/usr/bin/env python3
"""A training step of a model of transformers, at the shape of a config.json: the peer in `experts_compare.py`.

    transformers_peer.py --config DIR --experts grouped_mm|batched_mm|eager --dtype fp32|bf16 --batch 4 --length 512
                         [--steps 10] [--warmup 3] [--compile]

The step is forward with the next-token loss (and the routers' loss, if the family has one), backward, clipping
to a global norm of 1 and fused AdamW, on random tokens; bf16 means autocast with fp32 weights. Prints one JSON object.
"""

import argparse
import json
import resource
import statistics
import time

import torch
import transformers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--experts", required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.set_flush_denormal(True)
    config = transformers.AutoConfig.from_pretrained(args.config)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="sdpa", experts_implementation=args.experts, dtype=torch.float32)
    model.train()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8, fused=True)
    forward = torch.compile(model) if args.compile else model

    def step():
        tokens = torch.randint(0, config.vocab_size, (args.batch, args.length))
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
            loss = forward(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        return time.perf_counter() - begin

    for _ in range(args.warmup):
        step()
    median = statistics.median(step() for _ in range(args.steps))
    print(json.dumps({
        "program": "transformers", "version": transformers.__version__, "torch": torch.__version__,
        "experts": args.experts, "dtype": args.dtype, "parameters": sum(p.numel() for p in model.parameters()),
        "step_s": round(median, 4), "tokens_per_s": round(args.batch * args.length / median, 1),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}), flush=True)


if __name__ == "__main__":
    main()
