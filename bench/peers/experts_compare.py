#!/usr/bin/env python3
"""Mixtures of experts: Strata and transformers, interleaved, on shapes of about 100M parameters.

    bench/peers/experts_compare.sh [--model qwen3-moe deepseek-v3] [--dtype fp32 bf16] [--experts grouped_mm eager]
                                   [--rounds 3] [--steps 5] [--warmup 2] [--json FILE]

Both read the same config.json. A round runs every contestant once, each in a separate process. The ratio is to the
fastest of transformers' implementations of experts in the same round; its median over the rounds is printed.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys

import compare

BATCH, VOCABULARY = 4, 8192
COMMON = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "intermediate_size": 1536,
          "moe_intermediate_size": 256, "num_experts_per_tok": 4, "vocab_size": VOCABULARY,
          "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
          "hidden_act": "silu", "attention_bias": False, "bos_token_id": None, "eos_token_id": None}
SHAPES = {
    "qwen3-moe": COMMON | {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_key_value_heads": 4, "head_dim": 64,
        "num_experts": 32, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "output_router_logits": True, "router_aux_loss_coef": 0.001},
    "deepseek-v3": COMMON | {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_key_value_heads": 8,
        "n_routed_experts": 32, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
        "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "q_lora_rank": 256, "kv_lora_rank": 128,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64},
}


def config_of(model):
    folder = compare.WORK / f"experts-{model}"
    (folder / "model").mkdir(parents=True, exist_ok=True)
    (folder / "model" / "config.json").write_text(json.dumps(SHAPES[model], indent=1))
    return folder


def strata(model, dtype, steps, warmup):
    folder = config_of(model)
    tokens = compare.token_file(folder, VOCABULARY, BATCH * compare.LENGTH * 64)
    config, metrics = compare.write_config(folder, f'from = "{folder}/model"\ninit = "random"', tokens, BATCH, BATCH,
                                           steps + warmup, dtype)
    return {"model": model, "dtype": dtype} | compare.timed_run(config, metrics, BATCH * compare.LENGTH, warmup)


def transformers(model, dtype, experts, steps, warmup):
    line, _ = compare.run([sys.executable, compare.ROOT / "bench/peers/transformers_peer.py", "--config",
                           config_of(model) / "model", "--experts", experts, "--dtype", dtype, "--batch", str(BATCH),
                           "--length", str(compare.LENGTH), "--steps", str(steps), "--warmup", str(warmup)])
    return json.loads(line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--dtype", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--experts", nargs="+", default=["grouped_mm", "eager"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="also writes every single result here")
    args = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    everything = []
    for model in args.model:
        for dtype in args.dtype:
            ratios = []
            for number in range(args.rounds):
                results = {"strata": strata(model, dtype, args.steps, args.warmup)}
                for experts in args.experts:
                    results[f"transformers {experts}"] = transformers(model, dtype, experts, args.steps, args.warmup)
                for name, result in results.items():
                    print(f"{model} {dtype} round {number + 1}  {name:26} {result['tokens_per_s']:8.0f} tokens/s  "
                          f"{result['peak_rss_mb']:6d} MB", flush=True)
                best = max(r["tokens_per_s"] for name, r in results.items() if name != "strata")
                ratios.append(results["strata"]["tokens_per_s"] / best)
                everything.append({"model": model, "dtype": dtype, "round": number + 1} | results)
            print(f"{model} {dtype}: strata / the fastest of transformers {statistics.median(ratios):.2f}  "
                  f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    if args.json:
        args.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
